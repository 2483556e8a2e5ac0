package deadletter

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/wait"
)

// line is an exported dead letter, a JSON object in one line. Bytes are in base64, so that an import restores them exactly. A null
// stays null.
type line struct {
	DLQ        string          `json:"dlq"`
	Origin     string          `json:"origin"`
	Group      string          `json:"group"`
	ID         string          `json:"id"`
	Position   Position        `json:"position"`
	Time       time.Time       `json:"time"`
	Key        []byte          `json:"key"`
	Body       []byte          `json:"body"`
	Headers    []Header        `json:"headers"` // never null
	Writer     Writer          `json:"filler,omitempty"`
	Properties []Header        `json:"properties,omitempty"`
	Foreign    []Header        `json:"foreign,omitempty"`
	State      []driver.Header `json:"state"`
}

// lineOf returns a message as a line of the DLQ that info describes.
func lineOf(m *Message, info Info) line {
	return line{
		DLQ: info.DLQ, Origin: info.Origin, Group: info.Group, ID: m.ID, Position: m.Position, Time: m.Time, Key: m.Key, Body: m.Body,
		Headers: append([]Header{}, m.Headers...), Writer: m.Writer, Properties: m.Properties, Foreign: m.Foreign, State: driver.AppendStateHeaders(m.State, nil),
	}
}

// Export writes the dead letters that match a filter to w, one JSON object per line, and returns
// their number. It removes nothing from the DLQ.
func Export(ctx context.Context, q Queue, f Filter, w io.Writer) (n int64, err error) {
	info := q.Info()
	buffered := bufio.NewWriter(w)
	enc := json.NewEncoder(buffered)
	enc.SetEscapeHTML(false)
	for m, failed := range Browse(ctx, q, f) {
		if err = failed; err == nil {
			err = enc.Encode(lineOf(m, info))
		}
		if err != nil {
			break
		}
		n++
	}
	return n, errors.Join(err, buffered.Flush())
}

// ImportOptions says who imports, and why. Both are required.
type ImportOptions struct{ Who, Why string }

// Import writes the output of Export into a DLQ of the same origin and group, and returns the task.
// Task.Counts.Imported is the number of confirmed messages. A line that is no dead letter, or one of
// another origin or group, ends the import: no later line is written. An import can be cancelled, but
// not paused or resumed, because r is not kept: a second Import writes the earlier lines again, with the
// same ids. Headers that other programs added are imported unchanged.
func Import(ctx context.Context, q Queue, r io.Reader, opt ImportOptions) (Task, error) {
	var ps check.Problems
	checkWhoWhy(&ps, opt.Who, opt.Why)
	if err := ps.Err(); err != nil {
		return Task{}, err
	}
	t := newTask(q, KindImport, opt.Who, opt.Why)
	claim, err := q.Claim(ctx, Holder{Who: opt.Who, Task: t.ID})
	if err != nil {
		return Task{}, err
	}
	long, end := wait.Longer(ctx, maxFinish)
	defer end()
	if err = claim.Save(long, t); err == nil {
		in := importer{info: q.Info(), dec: json.NewDecoder(bufio.NewReader(r))}
		err = in.write(long, claim, &t, &stopRequests{callerCtx: ctx, claim: claim})
	}
	err = conclude(ctx, claim, &t, Report{}, err)
	return t, err
}

// importer reads the input of an import.
type importer struct {
	info Info
	dec  *json.Decoder
	n    int // number of objects read
}

// write writes the messages into the DLQ, window by window, and records its progress.
func (in *importer) write(ctx context.Context, claim Claim, t *Task, stop *stopRequests) error {
	for atEnd := false; !atEnd; {
		if err := stop.check(ctx, t); err != nil {
			return err
		}
		batch, err := in.gather()
		atEnd = err != nil
		errs := claim.Add(ctx, batch)
		for _, err := range errs {
			if err == nil {
				t.Counts.Imported++
			}
		}
		if !errors.Is(err, io.EOF) {
			errs = append(errs, err)
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if !atEnd { // conclude records the end
			t.Updated = now()
			if err := claim.Save(ctx, *t); err != nil {
				return err
			}
		}
	}
	return nil
}

// gather reads a window. It returns an error together with the messages before it.
func (in *importer) gather() (batch []*Message, err error) {
	for bytes := 0; len(batch) < DefaultWindow && bytes < maxGatherBytes; {
		in.n++
		var l line
		if err := in.dec.Decode(&l); errors.Is(err, io.EOF) {
			return batch, io.EOF
		} else if err != nil {
			return batch, fmt.Errorf("object %d is not a dead letter: %w", in.n, err)
		}
		m, err := l.message(in.info)
		if err != nil {
			return batch, fmt.Errorf("object %d: %w", in.n, err)
		}
		batch = append(batch, m)
		bytes += sizeOf(m)
	}
	return batch, nil
}

// message converts a line back into a message.
func (l *line) message(info Info) (*Message, error) {
	if l.Origin != info.Origin || l.Group != info.Group {
		return nil, fmt.Errorf("is of origin %q and group %q, and %s is the DLQ of origin %q and group %q", l.Origin, l.Group, info.DLQ, info.Origin, info.Group)
	}
	if l.ID == "" {
		return nil, errors.New("has no id")
	}
	if info.OwnDLQ != "" && (l.Writer == WriterRedeliver || len(l.Properties) > 0) {
		return nil, fmt.Errorf("needs headers of redeliver's, which do not count in %s, because another program fills it; import it into %s", info.DLQ, info.OwnDLQ)
	}
	m := &Message{ID: l.ID, Time: l.Time, Key: l.Key, Body: l.Body, Headers: l.Headers, Foreign: l.Foreign, Writer: l.Writer, Properties: l.Properties}
	ReadOwnHeaders(m, info, l.State) // this also restores a Mismatch
	if info.OwnDLQ == "" && m.Writer != WriterRedeliver && slices.ContainsFunc(m.Headers, isOurs) {
		// Without redeliver's own headers, the user's headers with redeliver's prefix would be trusted.
		m.Writer, m.Foreign = WriterRedeliver, nil
	}
	if len(m.Findings) > 0 {
		return nil, fmt.Errorf("has an invalid state: %s", m.Findings[0])
	}
	return m, nil
}

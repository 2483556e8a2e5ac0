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

	"github.com/redeliver/redeliver"
)

// line is an exported dead letter, a JSON object in one line. Bytes are in base64, so that an import restores them exactly. A null
// stays null.
type line struct {
	DLQ     string       `json:"dlq"`
	Origin  string       `json:"origin"`
	Group   string       `json:"group"`
	ID      string       `json:"id"`
	At      Position     `json:"position"`
	Time    time.Time    `json:"time"`
	Key     []byte       `json:"key"`
	Body    []byte       `json:"body"`
	Headers []lineHeader `json:"headers"`
	Filler  Writer       `json:"filler,omitempty"`
	Others  []lineHeader `json:"properties,omitempty"`
	Foreign []lineHeader `json:"foreign,omitempty"`
	State   []lineText   `json:"state"` // as in redeliver's headers
}

type lineText struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type lineHeader struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// Export writes the dead letters that match a filter to w, one JSON object per line, and returns
// their number. It removes nothing from the DLQ.
func Export(ctx context.Context, q Queue, f Filter, w io.Writer) (n int64, err error) {
	info := q.Info()
	buffered := bufio.NewWriter(w)
	enc := json.NewEncoder(buffered)
	enc.SetEscapeHTML(false)
	var failed error
	err = Browse(ctx, q, f, 0, func(m *Message) bool {
		l := line{
			DLQ: info.DLQ, Origin: info.Origin, Group: info.Group, ID: m.ID, At: m.Position, Time: m.Time,
			Key: m.Key, Body: m.Body, Headers: toLine(m.Headers), Filler: m.Writer, Others: toLine(m.Properties), Foreign: toLine(m.Foreign),
		}
		for _, h := range m.State.AppendHeaders(nil) {
			l.State = append(l.State, lineText(h))
		}
		if failed = enc.Encode(l); failed != nil {
			return false
		}
		n++
		return true
	})
	return n, errors.Join(err, failed, buffered.Flush())
}

func toLine(headers []Header) []lineHeader {
	lines := make([]lineHeader, len(headers))
	for i, h := range headers {
		lines[i] = lineHeader(h)
	}
	return lines
}

func fromLine(lines []lineHeader) []Header {
	headers := make([]Header, len(lines))
	for i, h := range lines {
		headers[i] = Header(h)
	}
	return headers
}

// Import writes the output of Export into a DLQ of the same origin and group, and returns the task.
// Task.Counts.Imported is the number of confirmed messages. A line that is no dead letter, or one of
// another origin or group, ends the import: no later line is written. An import can be cancelled, but
// not paused or resumed, because r is not kept: a second Import writes the earlier lines again, with the
// same ids. Headers that other programs added are imported unchanged.
func Import(ctx context.Context, q Queue, r io.Reader, who, why string) (Task, error) {
	var ps redeliver.Problems
	checkSigned(&ps, who, why)
	if err := ps.Err(); err != nil {
		return Task{}, err
	}
	t := newTask(q, KindImport, who, why)
	claim, err := q.Claim(ctx, Holder{Who: who, Task: t.ID})
	if err != nil {
		return Task{}, err
	}
	long, over := finishContext(ctx)
	defer over()
	if err = claim.Save(long, t); err == nil {
		in := intake{info: q.Info(), dec: json.NewDecoder(bufio.NewReader(r))}
		err = in.write(long, claim, &t, &stopRequests{callerCtx: ctx, claim: claim})
	}
	err = conclude(ctx, claim, &t, Report{}, err)
	return t, err
}

// intake reads the input of an import.
type intake struct {
	info Info
	dec  *json.Decoder
	n    int // number of objects read
}

// write writes the messages into the DLQ, window by window, and records its progress.
func (in *intake) write(ctx context.Context, claim Claim, t *Task, o *stopRequests) error {
	for atEnd := false; !atEnd; {
		if err := o.check(ctx, t); err != nil {
			return err
		}
		batch, err := in.gather()
		atEnd = err != nil
		var errs []error
		for _, err := range claim.Add(ctx, batch) {
			if err == nil {
				t.Counts.Imported++
			}
			errs = append(errs, err)
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
func (in *intake) gather() (batch []*Message, err error) {
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
	if info.OwnDLQ != "" && (l.Filler == WriterRedeliver || len(l.Others) > 0) {
		return nil, fmt.Errorf("needs headers of redeliver's, which are not believed in %s, because somebody else fills it; import it into %s", info.DLQ, info.OwnDLQ)
	}
	m := &Message{
		ID: l.ID, Time: l.Time, Key: l.Key, Body: l.Body, Headers: fromLine(l.Headers), Foreign: fromLine(l.Foreign), Writer: l.Filler, Properties: fromLine(l.Others),
	}
	state := make([]redeliver.Header, len(l.State))
	for i, h := range l.State {
		state[i] = redeliver.Header(h)
	}
	readOwn(m, info, state) // this also restores a Mismatch
	if info.OwnDLQ == "" && m.Writer != WriterRedeliver && slices.ContainsFunc(m.Headers, isOurs) {
		// Without redeliver's own headers, the user's headers with redeliver's prefix would be trusted.
		m.Writer, m.Foreign = WriterRedeliver, nil
	}
	if len(m.Findings) > 0 {
		return nil, fmt.Errorf("its state cannot be right: %s", m.Findings[0])
	}
	return m, nil
}

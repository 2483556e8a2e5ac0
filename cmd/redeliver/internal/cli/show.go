package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/bytetext"
)

// messageRow is a dead letter. Bytes are in base64, to keep them exact. Fields with Text have the same bytes as text,
// if they are valid UTF-8.
type messageRow struct {
	DLQ         string      `json:"dlq"`
	Position    string      `json:"position"`
	ID          string      `json:"id"`
	Time        time.Time   `json:"time"` // when it arrived in the DLQ
	Origin      string      `json:"origin"`
	Group       string      `json:"group"`
	Reason      string      `json:"reason,omitempty"`
	ErrorType   string      `json:"error_type,omitempty"`
	Error       string      `json:"error,omitempty"`
	FirstError  string      `json:"first_error,omitempty"` // if it is not Error
	Fingerprint string      `json:"fingerprint"`
	Attempts    int         `json:"attempts"`
	Replays     int         `json:"replays"`
	FirstFailed time.Time   `json:"first_failed,omitzero"`
	LastFailed  time.Time   `json:"last_failed,omitzero"`
	TraceID     string      `json:"trace_id,omitempty"` // of the last attempt
	Source      *sourceRow  `json:"source,omitempty"`   // position in the origin
	Handler     string      `json:"handler,omitempty"`
	Filler      string      `json:"filler,omitempty"`   // redeliver, spring-kafka, watermill, kafka-connect, kafka-streams, kafka-share-group
	Mismatch    string      `json:"mismatch,omitempty"` // why it belongs to another group or origin
	Findings    []string    `json:"findings,omitempty"` // problems of its headers
	Key         []byte      `json:"key"`                // base64; null for none
	KeyText     *string     `json:"key_text,omitempty"`
	Headers     []headerRow `json:"headers"`
	Foreign     []headerRow `json:"foreign,omitempty"` // headers of another framework that filled the DLQ
	Body        []byte      `json:"body"`              // base64; null for none
	BodyText    *string     `json:"body_text,omitempty"`
}

// sourceRow is the position of a message in its origin.
type sourceRow struct {
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Timestamp time.Time `json:"timestamp,omitzero"`
}

// headerRow is a header.
type headerRow struct {
	Name  string  `json:"name"`
	Value []byte  `json:"value"` // base64; null if the broker has none
	Text  *string `json:"text,omitempty"`
}

const defaultLimit = 50

func showCommand(a *app) *cobra.Command {
	var s subjectFlags
	var f filterFlags
	var limit int
	var full, raw bool
	cmd := &cobra.Command{
		Use: "show [DLQ]", Short: "Show messages", Args: atMostOne("the name of one DLQ"), ValidArgsFunction: a.dlqNames,
		Long: `Show the messages that match the filter, one per line, or with --full all of each message.
The formats json, jsonl and yaml always contain all of each message, with bytes in base64.`,
		Example: `  redeliver dlq show orders.billing.dlq --fingerprint 6f1d0c2b9a4e7713
  redeliver dlq show orders.billing.dlq --position 0/17 --full
  redeliver dlq show orders.billing.dlq --position 0/17 --raw > body`,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter(time.Now())
			switch {
			case err != nil:
				return err
			case limit < 0:
				return usagef("--limit is %d: must be 0 (for all) or more", limit)
			case raw && a.OutTerminal:
				return usagef("--raw writes the unchanged body, which may control the terminal: redirect stdout to a file")
			}
			return a.onDLQ(cmd, &s, args, func(ctx context.Context, q deadletter.Queue) error {
				switch {
				case raw:
					return a.showRaw(ctx, q, filter)
				case full && a.output == formatTable:
					return a.showFull(ctx, q, filter, limit)
				default:
					return a.showList(ctx, q, filter, limit)
				}
			})
		},
	}
	s.flags(cmd.Flags())
	f.flags(cmd, a.In)
	cmd.Flags().IntVar(&limit, "limit", defaultLimit, "Show at most this `number` of messages, 0 for all")
	cmd.Flags().BoolVar(&full, "full", false, "Show all of each message: headers, body, error and times")
	cmd.Flags().BoolVar(&raw, "raw", false, "Write the unchanged body of the one message that matches the filter")
	return cmd
}

// browse calls do for at most limit messages (0: for all), and says if there are more.
func (p *printer) browse(ctx context.Context, q deadletter.Queue, f deadletter.Filter, limit int, do func(*deadletter.Message) error) error {
	p.warnReadEffect(q)
	n := 0
	for m, err := range deadletter.Browse(ctx, q, f) {
		if err != nil {
			return err
		}
		if n++; limit > 0 && n > limit {
			p.sayf("only the first %d messages are shown; see --limit", limit)
			break
		}
		if err := do(m); err != nil {
			return err
		}
	}
	if n == 0 {
		p.sayf("no message in %s matches the filter", q.Info().DLQ)
	}
	return nil
}

// warnReadEffect prints the cost of reading the DLQ, if there is one.
func (p *printer) warnReadEffect(q deadletter.Queue) {
	if look := q.Info().ReadEffect; look != deadletter.NoReadEffect {
		p.sayf("%s: %s", q.Info().DLQ, look)
	}
}

func (p *printer) showList(ctx context.Context, q deadletter.Queue, f deadletter.Filter, limit int) error {
	out := p.list("POSITION", "ID", "FAILED", "REASON", "ATTEMPTS", "REPLAYS", "KEY", "ERROR")
	err := p.browse(ctx, q, f, limit, func(m *deadletter.Message) error {
		row := messageRowOf(q.Info(), m)
		return out.add(row, row.Position, longText(row.ID), m.Failed(), state(row.Reason), row.Attempts, row.Replays,
			longText(keyText(m.Key)), longText(errorOf(row.ErrorType, row.Error)))
	})
	return errors.Join(err, out.end())
}

func (p *printer) showFull(ctx context.Context, q deadletter.Queue, f deadletter.Filter, limit int) error {
	n := 0
	return p.browse(ctx, q, f, limit, func(m *deadletter.Message) error {
		if n++; n > 1 {
			if err := p.write(strings.Repeat("─", 60) + "\n"); err != nil {
				return err
			}
		}
		c := &details{}
		row := messageRowOf(q.Info(), m)
		row.draw(c, m)
		return c.print(p)
	})
}

// showRaw writes one body.
func (p *printer) showRaw(ctx context.Context, q deadletter.Queue, f deadletter.Filter) error {
	p.warnReadEffect(q)
	var found *deadletter.Message
	for m, err := range deadletter.Browse(ctx, q, f) {
		if err != nil {
			return err
		}
		if found != nil {
			return usagef("more than one message in %s matches the filter: select one with --position", q.Info().DLQ)
		}
		found = m
	}
	if found == nil {
		return failed(codeFailed, "no message in %s matches the filter", q.Info().DLQ)
	}
	return p.write(string(found.Body))
}

func messageRowOf(info deadletter.Info, m *deadletter.Message) *messageRow {
	st := &m.State
	row := &messageRow{
		DLQ: info.DLQ, Position: string(m.Position), ID: m.ID, Time: m.Time.UTC(), Origin: st.Origin, Group: st.Group,
		Reason: string(st.Reason), ErrorType: st.ErrorType, Error: st.Error, FirstError: st.FirstError, Fingerprint: deadletter.Fingerprint(m),
		Attempts: st.Attempts, Replays: st.Replays, FirstFailed: st.FirstFailed.UTC(), LastFailed: st.LastFailed.UTC(), TraceID: st.TraceID(),
		Handler: m.Handler, Filler: string(m.Writer), Mismatch: m.Mismatch,
		Key: m.Key, KeyText: textOf(m.Key), Headers: headerRows(m.Headers), Body: m.Body, BodyText: textOf(m.Body),
	}
	if len(m.Foreign) > 0 {
		row.Foreign = headerRows(m.Foreign)
	}
	if st.Source.Known {
		row.Source = &sourceRow{st.Source.Partition, st.Source.Offset, st.Source.Timestamp.UTC()}
	}
	for _, f := range m.Findings {
		row.Findings = append(row.Findings, f.String())
	}
	return row
}

func headerRows(headers []deadletter.Header) []headerRow {
	all := make([]headerRow, len(headers))
	for i, h := range headers {
		all[i] = headerRow{h.Name, h.Value, textOf(h.Value)}
		if !utf8.ValidString(h.Name) { // JSON has no such text
			all[i].Name = bytetext.Format([]byte(h.Name))
		}
	}
	return all
}

// textOf returns the bytes as text if they are valid UTF-8.
func textOf(b []byte) *string {
	if b == nil || !utf8.Valid(b) {
		return nil
	}
	s := string(b)
	return &s
}

// draw prints all fields of a message.
func (r *messageRow) draw(c *details, m *deadletter.Message) {
	c.line("position", r.Position)
	c.line("id", r.ID)
	c.line("dlq", r.DLQ)
	c.line("arrived", r.Time)
	c.line("origin", r.Origin)
	c.line("group", r.Group)
	if r.Source != nil {
		c.line("source", fmt.Sprintf("%d/%d, %s", r.Source.Partition, r.Source.Offset, timeText(r.Source.Timestamp)))
	}
	c.line("reason", state(r.Reason))
	c.line("error type", r.ErrorType)
	c.line("error", r.Error)
	c.line("first error", r.FirstError)
	c.line("fingerprint", r.Fingerprint)
	c.line("attempts", strconv.Itoa(r.Attempts))
	c.line("replays", strconv.Itoa(r.Replays))
	c.line("first failed", r.FirstFailed)
	c.line("last failed", r.LastFailed)
	c.line("trace", r.TraceID)
	c.line("handler", r.Handler)
	c.line("filled by", cmp.Or(r.Filler, "unknown"))
	c.line("mismatch", r.Mismatch)
	c.line("key", keyText(m.Key))
	for _, f := range r.Findings {
		c.line("finding", f)
	}
	c.table("headers", headerGrid(m.Headers))
	c.table("headers of "+string(m.Writer), headerGrid(m.Foreign))
	c.text(fmt.Sprintf("body, %d bytes", len(m.Body)), bodyText(m.Body))
}

func headerGrid(headers []deadletter.Header) *grid {
	g := newGrid(false, nil)
	for _, h := range headers {
		g.add([]any{plain([]byte(h.Name)), plain(h.Value)})
	}
	return g
}

// plain formats bytes for a table: text that is only escaped, such as a stack trace, and other bytes as a filter accepts them.
func plain(b []byte) string {
	switch {
	case b == nil:
		return "(null)"
	case utf8.Valid(b) && !bytes.ContainsRune(b, 0):
		return string(b)
	default:
		return bytetext.Format(b)
	}
}

// keyText formats a key for a table, as a filter accepts it.
func keyText(key []byte) string {
	if len(key) == 0 {
		return plain(key)
	}
	return bytetext.Format(key)
}

// bodyText formats a body as text or as a hex dump.
func bodyText(body []byte) string {
	switch {
	case body == nil:
		return "(null)"
	case len(body) == 0:
		return "(empty)"
	case utf8.Valid(body):
		return visibleLines(string(body))
	default:
		return hex.Dump(body)
	}
}

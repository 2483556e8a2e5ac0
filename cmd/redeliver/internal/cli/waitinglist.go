package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/mq"
)

// levelRow is the number of messages that wait in one topic or queue.
type levelRow struct {
	Broker   string    `json:"broker"`
	Origin   string    `json:"origin"`
	Group    string    `json:"group,omitempty"`    // Kafka only
	Level    string    `json:"level,omitempty"`    // absent for the retry topic, and if there are no levels
	Place    string    `json:"place"`              // the topic or queue
	Messages *int64    `json:"messages,omitempty"` // absent if unknown
	Exact    bool      `json:"exact"`              // false if Messages is an estimate
	Oldest   time.Time `json:"oldest,omitzero"`    // when the first message was written
	Due      time.Time `json:"due,omitzero"`       // when the first message is due
	Late     string    `json:"late,omitempty"`     // how long the first message has been due
}

// waitingRow is a waiting message.
type waitingRow struct {
	Origin      string      `json:"origin"`
	Group       string      `json:"group"`
	Level       string      `json:"level,omitempty"` // absent for the retry topic
	Place       string      `json:"place"`
	Position    string      `json:"position"`
	ID          string      `json:"id"`
	Time        time.Time   `json:"time"` // when it was written
	Due         time.Time   `json:"due"`
	Attempts    int         `json:"attempts"`
	Replays     int         `json:"replays"`
	FirstFailed time.Time   `json:"first_failed,omitzero"`
	LastFailed  time.Time   `json:"last_failed,omitzero"`
	ErrorType   string      `json:"error_type,omitempty"`
	Error       string      `json:"error,omitempty"`
	FirstError  string      `json:"first_error,omitempty"` // if it is not Error
	Fingerprint string      `json:"fingerprint"`
	Key         []byte      `json:"key"` // base64; null for none
	KeyText     *string     `json:"key_text,omitempty"`
	Headers     []headerRow `json:"headers"`
	Body        []byte      `json:"body"`
	BodyText    *string     `json:"body_text,omitempty"`
}

func waitingListCommand(a *app) *cobra.Command {
	var w waitingFlags
	var p policyFlags
	var limit int
	var messages bool
	cmd := &cobra.Command{
		Use: "list --topic TOPIC [--group GROUP]", Short: "Count the messages on each level, or list messages", Args: exactly(),
		Long: `Count the messages that wait on each level, and show when the first one is due and how late
it is.

On Kafka, --messages or any filter flag lists the messages themselves; it may read all of
them. Notes on stderr name the cancels in force.

On RabbitMQ without --management-url, list shows the levels of the policy that the policy
flags describe. SQS reports only an estimate of the delayed messages.`,
		Example: `  redeliver waiting list --topic orders --group billing
  redeliver waiting list --topic orders --group billing --error-text 'card declined' --limit 10`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := w.filter()
			if err != nil {
				return err
			}
			messages = messages || !filter.All()
			if limit < 0 {
				return usagef("--limit is %d: must be 0 (for all) or more", limit)
			}
			policy, err := p.policy(cmd.Flags())
			if err != nil {
				return err
			}
			if messages {
				if err := a.supported("waiting list --messages"); err != nil {
					return err
				}
				return a.onWaiting(cmd, &w, setup{}, func(ctx context.Context, _ *broker, at *waiting, of subject) error {
					return a.listWaiting(ctx, at.commands, of, filter, limit)
				})
			}
			return a.onWaiting(cmd, &w, setup{policy: policy}, a.listLevels)
		},
	}
	w.flags(cmd, true)
	p.flags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&messages, "messages", false, "List the messages (Kafka)")
	flags.IntVar(&limit, "limit", defaultLimit, "List at most this `number` of messages, 0 for all")
	return cmd
}

func (p *printer) listLevels(ctx context.Context, b *broker, w *waiting, of subject) error {
	levels, err := w.levels(ctx)
	if err != nil {
		return err
	}
	levels, empty := foldEmpty(p.output, levels)
	out, now := p.list("LEVEL", "MESSAGES", "OLDEST", "FIRST DUE", "LATE", "PLACE"), time.Now()
	for _, l := range levels {
		row := levelRow{
			Broker: string(b.kind), Origin: of.topic, Group: of.group, Level: levelText(l.Level), Place: l.Place, Messages: countOrNil(l.Depth), Exact: l.Exact,
			Oldest: l.Oldest.UTC(), Due: l.Due.UTC(),
		}
		if !l.Due.IsZero() && now.After(l.Due) {
			row.Late = now.Sub(l.Due).Round(time.Second).String()
		}
		var depth any = "?"
		if row.Messages != nil {
			depth = *row.Messages
		}
		if err := out.add(row, levelCell(l.Level), depth, row.Oldest, row.Due, cmp.Or(row.Late, "-"), row.Place); err != nil {
			return err
		}
	}
	err = out.end()
	if len(empty) > 0 {
		p.sayf("%d without messages: %s", len(empty), strings.Join(empty, ", "))
	}
	for _, n := range w.notes {
		p.sayf("note: %s", n)
	}
	return errors.Join(err, p.noteCancels(ctx, w))
}

// foldEmpty takes the levels without messages out of a table, and returns their names. Other formats have all levels.
func foldEmpty(format string, levels []deadletter.WaitingLevel) (full []deadletter.WaitingLevel, empty []string) {
	if format != formatTable {
		return levels, nil
	}
	for _, l := range levels {
		if n := countOrNil(l.Depth); n != nil && *n == 0 && l.Exact {
			empty = append(empty, cmp.Or(levelText(l.Level), l.Place))
		} else {
			full = append(full, l)
		}
	}
	return full, empty
}

func (p *printer) listWaiting(ctx context.Context, w mq.Waiting, of subject, f deadletter.WaitingFilter, limit int) error {
	out := p.list("LEVEL", "ID", "DUE", "ATTEMPTS", "KEY", "FINGERPRINT", "ERROR")
	n := 0
	for m, err := range w.Browse(ctx, f) {
		if err != nil {
			return errors.Join(err, out.end())
		}
		if n++; limit > 0 && n > limit {
			p.sayf("only the first %d messages are listed; see --limit", limit)
			break
		}
		row := waitingRowOf(of, m)
		if err := out.add(row, levelCell(m.Level), longText(row.ID), row.Due, row.Attempts, longText(keyText(m.Key)), row.Fingerprint,
			longText(errorOf(row.ErrorType, row.Error))); err != nil {
			return errors.Join(err, out.end())
		}
	}
	if n == 0 {
		p.sayf("no waiting message matches the filter")
	}
	return out.end()
}

func waitingRowOf(of subject, m deadletter.WaitingMessage) waitingRow {
	st := &m.State
	return waitingRow{
		Origin: of.topic, Group: of.group, Level: levelText(m.Level), Place: m.Place, Position: string(m.Position), ID: m.ID, Time: m.Time.UTC(), Due: st.Due.UTC(),
		Attempts: st.Attempts, Replays: st.Replays, FirstFailed: st.FirstFailed.UTC(), LastFailed: st.LastFailed.UTC(), ErrorType: st.ErrorType, Error: st.Error,
		FirstError: st.FirstError, Fingerprint: deadletter.Fingerprint(m.Message), Key: m.Key, KeyText: textOf(m.Key), Headers: headerRows(m.Headers), Body: m.Body, BodyText: textOf(m.Body),
	}
}

// noteCancels names the cancels in force, because messages that they select do not run.
func (p *printer) noteCancels(ctx context.Context, w *waiting) error {
	if w.commands == nil {
		return nil
	}
	all, err := w.commands.Commands(ctx)
	for i := range all {
		c := &all[i]
		if c.Kind != deadletter.CommandCancel || !time.Now().Before(c.Expires) {
			continue
		}
		what := "all messages"
		if !c.Everything {
			text, failed := json.Marshal(c.Filter)
			if failed != nil {
				return errors.Join(err, failed)
			}
			what = "messages that match " + string(text)
		}
		p.sayf("note: %s has cancelled %s that failed before %s: %s (command %s, until %s)", c.Who, what, c.Created.UTC().Format(time.RFC3339), c.Why, c.ID, c.Expires.UTC().Format(time.RFC3339))
	}
	return err
}

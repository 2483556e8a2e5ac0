package cli

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
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
	var messages, commands bool
	cmd := &cobra.Command{
		Use: "list --topic TOPIC [--group GROUP]", Short: "Count the messages on each level, or list messages or commands", Args: exactly(),
		Long: `Count the messages that wait on each level, and show when the first one is due and how late
it is.

On Kafka, --messages or any filter flag lists the messages themselves; it may read all of
them. --commands lists the commands of "waiting release" and "waiting cancel".

On RabbitMQ without --management-url, list shows the levels of the policy that the policy
flags describe. SQS reports only an estimate of the delayed messages.`,
		Example: `  redeliver waiting list --topic orders --group billing
  redeliver waiting list --topic orders --group billing --error-text 'card declined' --limit 10
  redeliver waiting list --topic orders --group billing --commands`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := w.filter()
			if err != nil {
				return err
			}
			messages = messages || !filter.All()
			switch {
			case limit < 0:
				return usagef("--limit is %d: must be 0 (for all) or more", limit)
			case messages && commands:
				return usagef("--commands lists commands, not messages: omit --messages and the filter flags")
			}
			policy, err := p.policy(cmd.Flags())
			if err != nil {
				return err
			}
			if messages || commands {
				verb := "waiting list --messages"
				if commands {
					verb = "waiting list --commands"
				}
				return a.onCommands(cmd, verb, &w, func(ctx context.Context, at *kafka.Waiting, of subject) error {
					if commands {
						return a.listCommands(ctx, at, of)
					}
					return a.listWaiting(ctx, at, of, filter, limit)
				})
			}
			return a.onWaiting(cmd, &w, setup{policy: policy}, a.listLevels)
		},
	}
	w.flags(cmd, true)
	p.flags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&messages, "messages", false, "List the messages (Kafka)")
	flags.BoolVar(&commands, "commands", false, "List the commands to the consumers (Kafka)")
	flags.IntVar(&limit, "limit", defaultLimit, "List at most this `number` of messages, 0 for all")
	return cmd
}

func (p *printer) listLevels(ctx context.Context, b *broker, w *waiting, of subject) error {
	levels, err := w.levels(ctx)
	if err != nil {
		return err
	}
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
	for _, n := range w.notes {
		p.sayf("note: %s", n)
	}
	return err
}

func (p *printer) listWaiting(ctx context.Context, w *kafka.Waiting, of subject, f deadletter.WaitingFilter, limit int) error {
	out := p.list("LEVEL", "ID", "DUE", "ATTEMPTS", "KEY", "FINGERPRINT", "ERROR")
	maxListed := 0
	if limit > 0 {
		maxListed = limit + 1 // one more, to detect whether there are more
	}
	n, more := 0, false
	var wrong error
	err := w.Browse(ctx, f, maxListed, func(at deadletter.WaitingLevel, m *deadletter.Message) bool {
		if n++; limit > 0 && n > limit {
			more = true
			return false
		}
		row := waitingRowOf(of, at, m)
		wrong = out.add(row, levelCell(at.Level), short(row.ID, 60), row.Due, row.Attempts, short(string(m.Key), 40), row.Fingerprint,
			short(errorOf(row.ErrorType, row.Error), 80))
		return wrong == nil
	})
	switch {
	case more:
		p.sayf("only the first %d messages are listed; see --limit", limit)
	case n == 0 && err == nil:
		p.sayf("no waiting message matches the filter")
	}
	return errors.Join(err, wrong, out.end())
}

func waitingRowOf(of subject, at deadletter.WaitingLevel, m *deadletter.Message) waitingRow {
	st := &m.State
	return waitingRow{
		Origin: of.topic, Group: of.group, Level: levelText(at.Level), Place: at.Place, Position: string(m.Position), ID: m.ID, Time: m.Time.UTC(), Due: st.Due.UTC(),
		Attempts: st.Attempts, Replays: st.Replays, FirstFailed: st.FirstFailed.UTC(), LastFailed: st.LastFailed.UTC(), ErrorType: st.ErrorType, Error: st.Error,
		Fingerprint: deadletter.Fingerprint(m), Key: m.Key, KeyText: textOf(m.Key), Headers: headerRows(m.Headers), Body: m.Body, BodyText: textOf(m.Body),
	}
}

// commandRow is a command to the consumers of a group.
type commandRow struct {
	ID      string                    `json:"id"`
	Kind    string                    `json:"kind"`   // release, cancel
	Status  string                    `json:"status"` // active, expired, withdrawn
	Origin  string                    `json:"origin"`
	Group   string                    `json:"group"`
	Who     string                    `json:"who"`
	Note    string                    `json:"note"`
	Created time.Time                 `json:"created"` // it affects messages that were scheduled earlier
	Expires time.Time                 `json:"expires"`
	Filter  *deadletter.WaitingFilter `json:"filter,omitempty"` // absent if it affects all messages
}

func commandRowOf(of subject, c *deadletter.Command, now time.Time) commandRow {
	row := commandRow{
		ID: c.ID, Kind: string(c.Kind), Status: "active", Origin: of.topic, Group: of.group, Who: c.Who, Note: c.Why, Created: c.Created.UTC(), Expires: c.Expires.UTC(),
	}
	if !now.Before(c.Expires) {
		row.Status = "expired"
	}
	if !c.Everything {
		row.Filter = &c.Filter
	}
	return row
}

func (p *printer) listCommands(ctx context.Context, w *kafka.Waiting, of subject) error {
	all, err := w.Commands(ctx)
	if err != nil {
		return err
	}
	out, now := p.list("COMMAND", "KIND", "STATUS", "LEVELS", "CREATED", "EXPIRES", "WHO", "NOTE"), time.Now()
	for i := range all {
		row, levels := commandRowOf(of, &all[i], now), "all"
		if names := all[i].Filter.Levels; len(names) > 0 {
			levels = strings.Join(names, ",")
		}
		if err := out.add(row, row.ID, row.Kind, state(row.Status), levels, row.Created, row.Expires, row.Who, short(row.Note, 60)); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		p.sayf("there are no commands to the consumers of group %s", of.group)
	}
	return out.end()
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

// queueRow is one DLQ.
type queueRow struct {
	Broker   string     `json:"broker"`
	DLQ      string     `json:"dlq"`
	Origin   string     `json:"origin,omitempty"`   // absent if the name does not contain it
	Group    string     `json:"group,omitempty"`    // absent if the name does not contain it
	Messages *int64     `json:"messages,omitempty"` // absent if unknown
	Exact    bool       `json:"exact"`              // false if Messages is an estimate
	Oldest   time.Time  `json:"oldest,omitzero"`    // arrival of the oldest message; absent if not reported
	Keeps    string     `json:"keeps,omitempty"`    // retention, "336h0m0s" or "forever"; absent if unknown
	Ends     time.Time  `json:"ends,omitzero"`      // when the broker drops the oldest message
	Drops    string     `json:"drops,omitempty"`    // another limit at which the broker drops messages
	Running  *holderRow `json:"running,omitempty"`  // the running task
}

// holderRow is a running task.
type holderRow struct {
	Task  string    `json:"task"`
	Who   string    `json:"who"`
	Since time.Time `json:"since"`
}

func listCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the DLQs of all groups", Args: exactly(),
		Long: `List the DLQs of all groups, with the number of messages, the age of the oldest one, and how
long the broker keeps it.

list finds DLQs by their names: on Kafka and RabbitMQ names that end in .dlq, on SQS names that
end in -dlq or -dlq.fifo. On RabbitMQ it needs --management-url.`,
		Example: `  redeliver dlq list --broker kafka://localhost:9092
  redeliver dlq list --broker amqp://ops@localhost --management-url http://localhost:15672`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if err := a.listable(); err != nil {
				return err
			}
			return a.withBroker(ctx, setup{}, func(b *broker) error {
				out := a.list(queueColumns...)
				notOpened := 0
				err := b.eachDLQ(ctx, func(info deadletter.Info, q deadletter.Queue, err error) error {
					row := queueRow{Broker: info.Broker, DLQ: info.DLQ, Origin: info.Origin, Group: info.Group}
					if err == nil {
						row, err = a.queueRowOf(ctx, info, q)
					}
					if err != nil { // deleted, or not readable with our rights; continue with the others
						notOpened++
						a.sayf("%s: %v", info.DLQ, err)
					}
					return out.add(row, row.cells()...)
				})
				switch {
				case err != nil:
				case out.n == 0:
					a.sayf("no DLQs found")
				case notOpened == out.n:
					err = failed(codeFailed, "none of the %d DLQs could be opened", out.n)
				case notOpened > 0:
					err = failed(codePartly, "%d of %d DLQs could not be opened", notOpened, out.n)
				}
				return errors.Join(err, out.end())
			})
		},
	}
}

// eachDLQ opens the DLQs one after another. q is nil if the name contains no topic and group, or if the DLQ could not
// be opened.
func (b *broker) eachDLQ(ctx context.Context, do func(info deadletter.Info, q deadletter.Queue, err error) error) error {
	if b.queues == nil {
		return errUnlisted
	}
	all, err := b.queues(ctx)
	if err != nil {
		return err
	}
	for _, info := range all {
		var q deadletter.Queue
		var unopened error
		if info.Origin != "" {
			q, unopened = b.dlq(ctx, subject{topic: info.Origin, group: info.Group})
		}
		err := do(info, q, unopened)
		if unopened == nil && q != nil {
			err = errors.Join(err, q.Close())
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

func (p *printer) queueRowOf(ctx context.Context, info deadletter.Info, q deadletter.Queue) (queueRow, error) {
	row := queueRow{Broker: info.Broker, DLQ: info.DLQ, Origin: info.Origin, Group: info.Group}
	if q == nil {
		return row, nil
	}
	n, exact, err := q.Count(ctx)
	if err != nil {
		return row, err
	}
	row.Messages, row.Exact = &n, exact
	p.addAge(ctx, &row, q)
	h, held, err := q.Holder(ctx)
	if err == nil && held {
		row.Running = &holderRow{Task: h.Task, Who: h.Who, Since: h.Since}
	}
	return row, err
}

// addAge adds the age of the oldest message and the retention. It reports a missing right, and omits what the broker
// does not report.
func (p *printer) addAge(ctx context.Context, row *queueRow, q deadletter.Queue) {
	oldest, known, err := q.Oldest(ctx)
	if err == nil && known {
		row.Oldest = oldest.UTC()
	}
	keeps, unknown := q.Retention(ctx)
	switch {
	case unknown != nil:
		err = errors.Join(err, unknown)
	case keeps == 0:
		row.Keeps = "forever"
	default:
		row.Keeps = keeps.String()
		if !row.Oldest.IsZero() {
			row.Ends = row.Oldest.Add(keeps)
		}
	}
	drops, unbound := q.DropLimit(ctx)
	row.Drops = drops
	if errors.Is(unbound, deadletter.ErrNotReported) {
		unbound = nil
	}
	if err = errors.Join(err, unbound); err != nil && !errors.Is(err, deadletter.ErrNotReported) {
		p.sayf("%s: the age of the messages is not known: %v", row.DLQ, err)
	}
}

// queueColumns are the headings of cells.
var queueColumns = []string{"DLQ", "ORIGIN", "GROUP", "MESSAGES", "OLDEST", "KEPT", "RUNNING"}

func (r queueRow) cells() []any {
	cells := []any{r.DLQ, cmp.Or(r.Origin, "?"), cmp.Or(r.Group, "?"), "?", r.Oldest, cmp.Or(r.Keeps, "?"), ""}
	if r.Messages != nil {
		cells[3] = *r.Messages
		if r.Oldest.IsZero() && *r.Messages > 0 {
			cells[4] = "?"
		}
	}
	if r.Drops != "" {
		cells[5] = cmp.Or(r.Keeps, "?") + ", " + r.Drops
	}
	if r.Running != nil {
		cells[6] = "task " + r.Running.Task + " by " + r.Running.Who
	}
	return cells
}

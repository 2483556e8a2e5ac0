package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

// queueRow is one DLQ, as list prints it.
type queueRow struct {
	Broker   string     `json:"broker"`
	DLQ      string     `json:"dlq"`
	Origin   string     `json:"origin,omitempty"`   // absent where the name does not tell
	Group    string     `json:"group,omitempty"`    // likewise
	Messages *int64     `json:"messages,omitempty"` // absent where that is not known
	Exact    bool       `json:"exact"`              // false: Messages is an estimate
	Running  *holderRow `json:"running,omitempty"`  // who has it now
}

// holderRow is who has a DLQ.
type holderRow struct {
	Task  string    `json:"task"`
	Who   string    `json:"who"`
	Since time.Time `json:"since"`
}

func (a *app) lists() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the DLQs of the broker, whatever their group", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			return a.with(ctx, setup{}, func(b *broker) error {
				out := a.list("DLQ", "ORIGIN", "GROUP", "MESSAGES", "RUNNING")
				err := b.each(ctx, func(info deadletter.Info, q deadletter.Queue) error {
					row, err := queueRowOf(ctx, info, q)
					if err != nil {
						return err
					}
					return out.add(row, row.cells()...)
				})
				if err == nil && out.n == 0 {
					a.sayf("there are no DLQs")
				}
				return errors.Join(err, out.end())
			})
		},
	}
}

// each opens one DLQ after another. q is nil where it cannot be told whose it is.
func (b *broker) each(ctx context.Context, do func(deadletter.Info, deadletter.Queue) error) error {
	if b.queues == nil || b.dlq == nil {
		return b.notThere("listing the DLQs")
	}
	all, err := b.queues(ctx)
	if err != nil {
		return err
	}
	for _, info := range all {
		var q deadletter.Queue
		if info.Origin != "" {
			if q, err = b.dlq(ctx, subject{topic: info.Origin, group: info.Group}); err != nil {
				return err
			}
		}
		err := do(info, q)
		if q != nil {
			err = errors.Join(err, q.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func queueRowOf(ctx context.Context, info deadletter.Info, q deadletter.Queue) (queueRow, error) {
	row := queueRow{Broker: info.Broker, DLQ: info.DLQ, Origin: info.Origin, Group: info.Group}
	if q == nil {
		return row, nil
	}
	n, exact, err := q.Count(ctx)
	if err != nil {
		return row, err
	}
	row.Messages, row.Exact = &n, exact
	h, held, err := q.Holder(ctx)
	if err == nil && held {
		row.Running = &holderRow{Task: h.Task, Who: h.Who, Since: h.Since}
	}
	return row, err
}

func (r queueRow) cells() []any {
	cells := []any{r.DLQ, first(r.Origin, "?"), first(r.Group, "?"), "?", ""}
	if r.Messages != nil {
		cells[3] = *r.Messages
	}
	if r.Running != nil {
		cells[4] = r.Running.Task + " by " + r.Running.Who
	}
	return cells
}

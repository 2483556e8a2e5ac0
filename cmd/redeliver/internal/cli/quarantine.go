package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

func (a *app) quarantine() *cobra.Command {
	var w workFlags
	var i deadletter.Isolation
	cmd := &cobra.Command{
		Use: "quarantine [DLQ] --note WHY", Short: "Mark messages that no replay is to take", Args: atMostDLQ, ValidArgsFunction: a.dlqNames,
		Long: `quarantine marks what the flags take, and what lies in the DLQ now, as a replay marks what
was replayed too often: it stays there, and replays pass it over. They take it, and it is
marked no more, with --quarantined.

On RabbitMQ and SQS a DLQ has 2,000 marks at most. What finds no room is not marked, and
the task has failed then, with what it has marked. On a FIFO queue of SQS only what it
shows of a group at once can be marked: ten messages.`,
		Example: `  redeliver dlq quarantine orders.billing.dlq --fingerprint 6f1d0c2b9a4e7713 --note 'waits for the fix of OPS-17'
  redeliver dlq replay orders.billing.dlq --fingerprint 6f1d0c2b9a4e7713 --quarantined --note 'OPS-17 is out'`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if i.Filter, err = a.chosen(&w); err != nil {
				return err
			}
			i.Who, i.Why = w.sign.who, w.sign.note
			if i.Filter.All() {
				return usagef("that would mark everything: say what is meant")
			}
			if err := a.unasked(cmd, w.dry || w.yes); err != nil {
				return err
			}
			return a.onDLQ(cmd, &w.subject, args, func(ctx context.Context, q deadletter.Queue) error {
				if w.dry || !w.yes {
					row, err := a.forecastMarks(ctx, q, i.Filter)
					if err != nil {
						return err
					}
					switch {
					case w.dry:
						return a.one(row, row.draw)
					case row.Matched == 0:
						a.sayf("no message in %s is taken by that", row.DLQ)
						return nil
					case row.Quarantine == 0:
						a.sayf("what is taken by that in %s is quarantined already", row.DLQ)
						return nil
					}
					if err := a.confirm(ctx, "y", "quarantine %d of %d messages in %s?", row.Quarantine, row.Scanned, row.DLQ); err != nil {
						return err
					}
				}
				return a.run(ctx, q, w.results, func(ctx context.Context, report deadletter.Report) (deadletter.Task, error) {
					i.Report = report
					return deadletter.Quarantine(ctx, q, i)
				})
			})
		},
	}
	w.flags(cmd, "say how many, and change nothing")
	return cmd
}

// forecastMarks counts what a quarantine would mark: what it takes and is not yet.
func (a *app) forecastMarks(ctx context.Context, q deadletter.Queue, f deadletter.Filter) (*forecastRow, error) {
	a.looking(q)
	sum, err := deadletter.Groups(ctx, q, f)
	row := &forecastRow{DryRun: true, DLQ: q.Info().DLQ, Scanned: sum.Scanned, Matched: sum.Matched, Quarantine: sum.Matched, marks: true}
	for i := range sum.Groups {
		row.Quarantine -= sum.Groups[i].Quarantined
	}
	return row, err
}

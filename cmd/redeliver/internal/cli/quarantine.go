package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

func quarantineCommand(a *app) *cobra.Command {
	return workCommand(a, &work{
		use: "quarantine [DLQ] --note TEXT", short: "Mark messages so that replays skip them",
		long: `Mark messages so that replays skip them. They stay in the DLQ. A replay with --quarantined
sends them and removes the mark.

The filter selects among the messages that are in the DLQ now. On RabbitMQ and SQS a DLQ
holds at most 2,000 marks. When there is no room for more, the task fails and keeps the
marks that it has made. On an SQS FIFO queue only the first ten messages of a message group
can be marked.`,
		example: `  redeliver dlq quarantine orders.billing.dlq --fingerprint 6f1d0c2b9a4e7713 --note 'waits for the fix of OPS-17'
  redeliver dlq replay orders.billing.dlq --fingerprint 6f1d0c2b9a4e7713 --quarantined --note 'OPS-17 is released'`,
		check: func(f deadletter.Filter) error {
			if f.All() {
				return usagef("no filter given, so quarantine would mark everything: give a filter flag")
			}
			return nil
		},
		forecast: func(ctx context.Context, q deadletter.Queue, f deadletter.Filter) (*forecastRow, error) {
			sum, err := deadletter.Groups(ctx, q, f)
			if err != nil {
				return nil, err
			}
			row := &forecastRow{
				DryRun: true, DLQ: q.Info().DLQ, Scanned: sum.Scanned, Matched: sum.Matched, Quarantine: sum.Matched, verbs: []string{"quarantine"},
			}
			for i := range sum.Groups {
				row.Quarantine -= sum.Groups[i].Quarantined
			}
			return row, nil
		},
		ask: func(f *forecastRow) (question, answer string) {
			return fmt.Sprintf("Quarantine %d of %d messages in %s?", f.Quarantine, f.Scanned, f.DLQ), "y"
		},
		run: func(ctx context.Context, q deadletter.Queue, f deadletter.Filter, s signature, report deadletter.Report) (deadletter.Task, error) {
			return deadletter.Quarantine(ctx, q, deadletter.QuarantineOptions{Filter: f, Who: s.who, Why: s.note, Report: report})
		},
	})
}

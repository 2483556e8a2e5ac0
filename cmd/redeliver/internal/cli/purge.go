package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/deadletter"
)

func purgeCommand(a *app) *cobra.Command {
	var p deadletter.PurgeOptions
	return workCommand(a, &work{
		use: "purge [DLQ] --note TEXT", short: "Remove messages for good",
		long: `Remove messages from a DLQ for good. Export them first if you may need them.

The filter selects among the messages that are in the DLQ now; messages that arrive later
stay. To remove all messages give --all. On a terminal purge shows how many messages match,
and you type the name of the DLQ to confirm. It removes nothing when more messages match
than it showed, or than --expect allows.

On Kafka, --all or nothing but --position removes records without reading them. A DLQ that
another program fills is then counted by offsets: the number is too high if that program
writes in transactions.`,
		example: `  redeliver dlq purge orders.billing.dlq --before 2026-01-01 --dry-run
  redeliver dlq purge orders.billing.dlq --before 2026-01-01 --note 'older than we may keep'`,
		flags: func(flags *pflag.FlagSet) {
			flags.BoolVar(&p.Everything, "all", false, "Remove all messages. Without it a filter flag is required")
			flags.Int64Var(&p.Expect, "expect", 0, "Remove nothing when more than this `number` of messages match (default no limit)")
		},
		check: func(f deadletter.Filter) error {
			if f.All() && !p.Everything {
				return usagef("no filter given, so purge would remove everything: give a filter flag, or --all")
			}
			if p.Expect < 0 {
				return usagef("--expect is %d: must be 0 or more", p.Expect)
			}
			return nil
		},
		forecast: func(ctx context.Context, q deadletter.Queue, f deadletter.Filter) (*forecastRow, error) {
			plan, err := deadletter.DryRunPurge(ctx, q, deadletter.PurgeOptions{Filter: f})
			if err != nil {
				return nil, err
			}
			row := &forecastRow{DryRun: true, DLQ: q.Info().DLQ, Scanned: plan.Scanned, Matched: plan.Matched, Purge: plan.Matched, About: plan.About, verbs: []string{"remove"}}
			if p.Expect > 0 && row.Purge > p.Expect {
				err = failed(codeFailed, "%w: %d messages match, and --expect is %d", deadletter.ErrTooMany, row.Purge, p.Expect)
			}
			return row, err
		},
		ask: func(f *forecastRow) (question, answer string) {
			p.Expect = cmp.Or(p.Expect, f.Purge)
			about := ""
			if f.About {
				about = "about "
			}
			return fmt.Sprintf("Remove %s%d of %d messages in %s for good? Type the name of the DLQ:", about, f.Purge, f.Scanned, f.DLQ), f.DLQ
		},
		run: func(ctx context.Context, q deadletter.Queue, f deadletter.Filter, s signature, report deadletter.Report) (deadletter.Task, error) {
			p.Filter, p.Who, p.Why, p.Report = f, s.who, s.note, report
			t, err := deadletter.Purge(ctx, q, p)
			if errors.Is(err, deadletter.ErrTooMany) {
				err = failed(codeFailed, "%w: see with --dry-run what matches now", err)
			}
			return t, err
		},
	})
}

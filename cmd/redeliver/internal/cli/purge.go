package cli

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

func (a *app) purge() *cobra.Command {
	var w workFlags
	var p deadletter.Removal
	cmd := &cobra.Command{
		Use: "purge [DLQ] --note WHY", Short: "Remove messages from a DLQ for good", Args: atMostDLQ, ValidArgsFunction: a.dlqNames,
		Long: `purge removes what the flags take, and what lies in the DLQ now. A filter that takes
everything must be meant: give --all. Before a terminal it shows how many, and wants the
name of the DLQ typed; when more would be removed than were shown, or than --expect
says, nothing is. What comes meanwhile is not touched.`,
		Example: `  redeliver dlq purge orders.billing.dlq --before 2026-01-01 --dry-run
  redeliver dlq purge orders.billing.dlq --before 2026-01-01 --note 'older than we may keep'`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if p.Filter, err = a.chosen(&w); err != nil {
				return err
			}
			p.Who, p.Why = w.sign.who, w.sign.note
			if p.Filter.All() && !p.Everything {
				return usagef("that would remove everything: say what is meant, or give --all")
			}
			if p.Expect < 0 {
				return usagef("--expect is %d: it must be the number of messages that were shown", p.Expect)
			}
			if err := a.unasked(cmd, w.dry || w.yes); err != nil {
				return err
			}
			return a.onDLQ(cmd, &w.subject, args, func(ctx context.Context, q deadletter.Queue) error {
				if w.dry || !w.yes {
					row, err := a.forecastPurge(ctx, q, p.Filter)
					if err != nil {
						return err
					}
					if w.dry {
						err = a.one(row, row.draw)
					}
					switch {
					case err != nil:
						return err
					case p.Expect > 0 && row.Purge > p.Expect:
						return failed(codeFailed, "%w: they are %d; look again", deadletter.ErrMore, row.Purge)
					case w.dry:
						return nil
					case row.Purge == 0:
						a.sayf("no message in %s is taken by that", row.DLQ)
						return nil
					}
					if err := a.confirm(ctx, row.DLQ, "remove %d of %d messages in %s for good? Type the name of the DLQ:", row.Purge, row.Scanned, row.DLQ); err != nil {
						return err
					}
					p.Expect = cmp.Or(p.Expect, row.Purge)
				}
				return a.run(ctx, q, w.results, func(ctx context.Context, report deadletter.Report) (deadletter.Task, error) {
					p.Report = report
					t, err := deadletter.Purge(ctx, q, p)
					if errors.Is(err, deadletter.ErrMore) {
						err = failed(codeFailed, "%w; look again", err)
					}
					return t, err
				})
			})
		},
	}
	w.flags(cmd, "say how many, and change nothing")
	flags := cmd.Flags()
	flags.BoolVar(&p.Everything, "all", false, "remove everything, where no other flag says what is meant")
	flags.Int64Var(&p.Expect, "expect", 0, "remove nothing when it would be more messages than this")
	return cmd
}

func (a *app) forecastPurge(ctx context.Context, q deadletter.Queue, f deadletter.Filter) (*forecastRow, error) {
	a.looking(q)
	plan, err := deadletter.DryRun(ctx, q, deadletter.Replay{Filter: f})
	if err != nil {
		return nil, err
	}
	return &forecastRow{DryRun: true, DLQ: q.Info().DLQ, Scanned: plan.Scanned, Matched: plan.Matched, Purge: plan.Matched}, nil
}

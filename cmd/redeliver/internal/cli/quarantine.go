package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

func (a *app) quarantine() *cobra.Command {
	var s subjectFlags
	var f filterFlags
	var sign signFlags
	var i deadletter.Isolation
	var results string
	var dry, yes bool
	cmd := &cobra.Command{
		Use: "quarantine [DLQ] --reason WHY", Short: "Mark messages that no replay is to take", Args: atMostDLQ, ValidArgsFunction: a.dlqNames,
		Long: `quarantine marks what the flags take, and what lies in the DLQ now, as a replay marks what
was replayed too often: it stays there, and replays pass it over. They take it, and it is
marked no more, with --quarantined.`,
		Example: `  redeliver dlq quarantine orders.billing.dlq --fingerprint 3f6a0c92 --reason 'waits for the fix of OPS-17'
  redeliver dlq replay orders.billing.dlq --fingerprint 3f6a0c92 --quarantined --reason 'OPS-17 is out'`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if i.Filter, err = f.filter(time.Now()); err != nil {
				return err
			}
			if err := a.sign(&sign, dry); err != nil {
				return err
			}
			i.Who, i.Why = sign.who, sign.reason
			if i.Filter.All() {
				return usagef("that would mark everything: say what is meant")
			}
			if !dry {
				if err := a.unasked(cmd, yes); err != nil {
					return err
				}
			}
			return a.onDLQ(cmd, &s, args, func(ctx context.Context, q deadletter.Queue) error {
				if dry || !yes {
					row, err := a.forecastPurge(ctx, q, i.Filter)
					if err != nil {
						return err
					}
					row.Quarantine, row.Purge, row.marks = row.Purge, 0, true
					switch {
					case dry:
						return a.one(row, row.draw)
					case row.Quarantine == 0:
						a.sayf("no message in %s is taken by that", row.DLQ)
						return nil
					}
					if err := a.confirm(ctx, "y", "quarantine %d of %d messages in %s?", row.Quarantine, row.Scanned, row.DLQ); err != nil {
						return err
					}
				}
				return a.run(ctx, q, results, func(ctx context.Context, report deadletter.Report) (deadletter.Task, error) {
					i.Report = report
					return deadletter.Quarantine(ctx, q, i)
				})
			})
		},
	}
	s.flags(cmd)
	f.flags(cmd.Flags())
	sign.flags(cmd)
	flags := cmd.Flags()
	s.runner(flags)
	resultsFlag(cmd, &results)
	flags.BoolVar(&dry, "dry-run", false, "say how many, and change nothing")
	yesFlag(cmd, &yes)
	return cmd
}

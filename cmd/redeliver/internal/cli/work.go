package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/deadletter"
)

// work is a verb that changes the messages that a filter selects: replay or purge. Both count the
// messages, ask, and run a task.
type work struct {
	use, short, long, example string
	flags                     func(*pflag.FlagSet) // the verb's own flags
	// check refuses a wrong call before any request to the broker.
	check func(deadletter.Filter) error
	// forecast counts what would happen. With both a row and an error, the work would be refused.
	forecast func(ctx context.Context, q deadletter.Queue, f deadletter.Filter) (*forecastRow, error)
	// ask returns the question, and the answer that starts the work.
	ask func(*forecastRow) (question, answer string)
	// alone reports whether the work is done without a person, by runAlone. It may be nil.
	alone    func() bool
	runAlone func(ctx context.Context, q deadletter.Queue, f deadletter.Filter, s signature, report deadletter.Report) error
	run      func(ctx context.Context, q deadletter.Queue, f deadletter.Filter, s signature, report deadletter.Report) (deadletter.Task, error)
}

func workCommand(a *app, w *work) *cobra.Command {
	var subject subjectFlags
	var filter filterFlags
	var sign signature
	var results string
	var dry, yes bool
	cmd := &cobra.Command{
		Use: w.use, Short: w.short, Long: w.long, Example: w.example, Args: atMostOne("the name of one DLQ"), ValidArgsFunction: a.dlqNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := filter.filter(time.Now())
			if err != nil {
				return err
			}
			alone := w.alone != nil && w.alone()
			if filter.positionsFrom == "-" && !dry && !yes && !alone {
				return usagef("--positions - reads stdin, so nobody can confirm: give --yes, or a file")
			}
			if err := a.sign(&sign, dry || alone); err != nil {
				return err
			}
			if err := w.check(f); err != nil {
				return err
			}
			if err := a.checkConfirmable(cmd, dry || yes || alone); err != nil {
				return err
			}
			return a.onDLQ(cmd, &subject, args, func(ctx context.Context, q deadletter.Queue) error {
				if alone && !dry {
					return a.withResults(results, func(report deadletter.Report) error { return w.runAlone(ctx, q, f, sign, report) })
				}
				var expect int64
				if dry || !yes {
					a.warnReadEffect(q)
					row, err := w.forecast(ctx, q, f)
					if row == nil {
						return err
					}
					if dry {
						return errors.Join(a.printOne(row, row.draw), err)
					}
					if err != nil {
						return err
					}
					if row.Matched == 0 {
						a.sayf("nothing to do: no message in %s matches the filter", row.DLQ)
						return nil
					}
					expect = row.Matched
					question, answer := w.ask(row)
					if err := a.confirm(ctx, answer, question); err != nil {
						return err
					}
				}
				return a.runTask(ctx, q, results, expect, func(ctx context.Context, report deadletter.Report) (deadletter.Task, error) {
					return w.run(ctx, q, f, sign, report)
				})
			})
		},
	}
	subject.flags(cmd.Flags())
	filter.flags(cmd, a.In)
	if w.flags != nil {
		w.flags(cmd.Flags())
	}
	grouped(cmd.Flags(), groupChange, func(flags *pflag.FlagSet) {
		sign.flags(flags)
		flags.BoolVar(&dry, "dry-run", false, "Count the messages and change nothing")
		yesFlag(flags, &yes)
		resultsFlag(flags, &results)
		subject.runner(flags)
	})
	return cmd
}

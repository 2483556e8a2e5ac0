package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/deadletter"
)

func tasksCommand(a *app) *cobra.Command {
	var s subjectFlags
	cmd := &cobra.Command{
		Use: "tasks [DLQ]", Short: "List the task history: what was done, by whom and why", Args: atMostOne("the name of one DLQ"), ValidArgsFunction: a.dlqNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onDLQ(cmd, &s, args, func(ctx context.Context, q deadletter.Queue) error {
				tasks, err := deadletter.History(ctx, q)
				if err != nil {
					return err
				}
				out := a.list("TASK", "KIND", "STATUS", "DONE", "WHO", "NOTE", "DETAIL", "FILTER")
				for i := range tasks {
					t := &tasks[i]
					if err := out.add(taskRowOf(t, q.Info().ReplayTo), t.ID, string(t.Kind), state(t.Status), counts(&t.Counts), longText(t.Who),
						longText(t.Why), longText(t.Note), longText(filterText(t))); err != nil {
						return err
					}
				}
				if len(tasks) == 0 {
					a.sayf("%s has no tasks yet", q.Info().DLQ)
				}
				return out.end()
			})
		},
	}
	s.flags(cmd.Flags())
	return cmd
}

// taskArgs checks the arguments of a verb about one task: the DLQ, unless --topic and --group name it, and the id of
// the task.
func taskArgs(_ *cobra.Command, args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("this command takes the name of a DLQ and the id of a task, as \"dlq tasks\" prints it; %d arguments were given", len(args))
	}
	return nil
}

func resumeCommand(a *app) *cobra.Command {
	var s subjectFlags
	var sign signature
	var program throughFlags
	var results string
	var yes bool
	cmd := &cobra.Command{
		Use: "resume [DLQ] TASK", Short: "Continue a task that was paused, stopped or killed", Args: taskArgs, ValidArgsFunction: a.dlqNames,
		Long: `Continue a replay or purge that was paused, stopped or killed, or that failed.

It takes only messages that were in the DLQ when the task was created. A replay with --canary
begins with its first step again. A replay with --through needs --through again.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.sign(&sign, true); err != nil {
				return err
			}
			if err := a.checkConfirmable(cmd, yes); err != nil {
				return err
			}
			change, err := program.change()
			if err != nil {
				return err
			}
			id := args[len(args)-1]
			return a.onDLQ(cmd, &s, args[:len(args)-1], func(ctx context.Context, q deadletter.Queue) error {
				if !yes {
					t, err := deadletter.Lookup(ctx, q, id)
					if err != nil {
						return err
					}
					if err := a.confirm(ctx, "y", fmt.Sprintf("Continue the %s of %s, %q? It is %s; done so far: %s.", t.Kind, t.Who, t.Why, t.Status, counts(&t.Counts))); err != nil {
						return err
					}
				}
				return a.runTask(ctx, q, results, 0, func(ctx context.Context, report deadletter.Report) (deadletter.Task, error) {
					return deadletter.Resume(ctx, q, id, deadletter.ResumeOptions{Who: sign.who, Report: report, Change: change})
				})
			})
		},
	}
	s.flags(cmd.Flags())
	grouped(cmd.Flags(), groupChange, func(flags *pflag.FlagSet) {
		sign.whoFlag(flags, inHistory)
		program.flags(flags)
		yesFlag(flags, &yes)
		resultsFlag(flags, &results)
		s.runner(flags)
	})
	return cmd
}

func pauseCommand(a *app) *cobra.Command {
	return requestCommand(a, "pause", "Pause a task, so that it can be resumed",
		func(ctx context.Context, q deadletter.Queue, id, _ string) error { return deadletter.Pause(ctx, q, id) })
}

func cancelCommand(a *app) *cobra.Command {
	return requestCommand(a, "cancel", "End a task for good; its earlier effects stay", func(ctx context.Context, q deadletter.Queue, id, who string) error {
		return deadletter.Cancel(ctx, q, id, deadletter.CancelOptions{Who: who})
	})
}

// requestCommand returns a verb that asks a task on any machine to pause or to end.
func requestCommand(a *app, verb, short string, do func(ctx context.Context, q deadletter.Queue, id, who string) error) *cobra.Command {
	var s subjectFlags
	var sign signature
	cmd := &cobra.Command{
		Use: verb + " [DLQ] TASK", Short: short, Args: taskArgs, ValidArgsFunction: a.dlqNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.sign(&sign, true); err != nil {
				return err
			}
			id := args[len(args)-1]
			return a.onDLQ(cmd, &s, args[:len(args)-1], func(ctx context.Context, q deadletter.Queue) error {
				if err := do(ctx, q, id, sign.who); err != nil {
					return err
				}
				t, err := deadletter.Lookup(ctx, q, id)
				if err != nil {
					return err
				}
				row := taskRowOf(&t, q.Info().ReplayTo)
				a.sayf("requested: if the task is running, it reacts within a second")
				return a.printOne(row, func(c *details) {
					c.line("task", row.ID)
					c.line("status", state(row.Status))
					c.line("done", counts(&row.Counts))
				})
			})
		},
	}
	s.flags(cmd.Flags())
	grouped(cmd.Flags(), groupChange, func(flags *pflag.FlagSet) { sign.whoFlag(flags, inHistory) })
	return cmd
}

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

func (a *app) tasks() *cobra.Command {
	var s subjectFlags
	cmd := &cobra.Command{
		Use: "tasks [DLQ]", Short: "List what was done to a DLQ, by whom and why", Args: atMostDLQ, ValidArgsFunction: a.dlqNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onDLQ(cmd, &s, args, func(ctx context.Context, q deadletter.Queue) error {
				tasks, err := deadletter.History(ctx, q)
				if err != nil {
					return err
				}
				out := a.list("TASK", "KIND", "STATUS", "DONE", "WHO", "NOTE", "DETAIL")
				for i := range tasks {
					t := &tasks[i]
					if err := out.add(taskRowOf(t, q.Info().Back), t.ID, string(t.Kind), string(t.Status), counts(&t.Counts), t.Who,
						short(t.Why, 60), short(t.Note, 100)); err != nil {
						return err
					}
				}
				if len(tasks) == 0 {
					a.sayf("nothing was done to %s yet", q.Info().DLQ)
				}
				return out.end()
			})
		},
	}
	s.flags(cmd)
	return cmd
}

// taskArgs are the arguments of a verb about one task: the DLQ, where --topic and
// --group do not say it, and the task's id.
func taskArgs(_ *cobra.Command, args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("there are %d arguments: it takes the name of a DLQ and the id of a task, as dlq tasks has it", len(args))
	}
	return nil
}

func (a *app) resume() *cobra.Command {
	var s subjectFlags
	var sign signFlags
	var results string
	var yes bool
	cmd := &cobra.Command{
		Use: "resume [DLQ] TASK", Short: "Go on with a replay or purge that was paused, stopped or killed", Args: taskArgs, ValidArgsFunction: a.dlqNames,
		Long: `resume goes on with a replay or a purge. It touches only what lay in the DLQ when the
task was made, and begins with its canary again.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.sign(&sign, true); err != nil {
				return err
			}
			if err := a.unasked(cmd, yes); err != nil {
				return err
			}
			id := args[len(args)-1]
			return a.onDLQ(cmd, &s, args[:len(args)-1], func(ctx context.Context, q deadletter.Queue) error {
				if !yes {
					t, err := deadletter.Lookup(ctx, q, id)
					if err != nil {
						return err
					}
					if err := a.confirm(ctx, "y", "go on with the %s of %s, %q? It is %s; done so far: %s.", t.Kind, t.Who, t.Why, t.Status, counts(&t.Counts)); err != nil {
						return err
					}
				}
				return a.run(ctx, q, results, func(ctx context.Context, report deadletter.Report) (deadletter.Task, error) {
					return deadletter.Resume(ctx, q, id, sign.who, report)
				})
			})
		},
	}
	s.flags(cmd)
	sign.whoFlag(cmd)
	s.runner(cmd.Flags())
	resultsFlag(cmd, &results)
	yesFlag(cmd, &yes)
	return cmd
}

func (a *app) pause() *cobra.Command {
	return a.wish("pause", "Ask the runner of a task to stop after its present window",
		func(ctx context.Context, q deadletter.Queue, id, _ string) error { return deadletter.Pause(ctx, q, id) })
}

func (a *app) cancel() *cobra.Command {
	return a.wish("cancel", "End a task for good; what it has done stays done", deadletter.Cancel)
}

// wish makes a verb that asks something of a task, wherever that runs.
func (a *app) wish(verb, short string, do func(ctx context.Context, q deadletter.Queue, id, who string) error) *cobra.Command {
	var s subjectFlags
	var sign signFlags
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
				row := taskRowOf(&t, q.Info().Back)
				a.sayf("asked for: its runner, if there is one, sees it within a second")
				return a.one(row, func(c *card) {
					c.line("task", row.ID)
					c.line("status", row.Status)
					c.line("done", counts(&row.Counts))
				})
			})
		},
	}
	s.flags(cmd)
	sign.whoFlag(cmd)
	return cmd
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

// checkRow is a DLQ with its problems.
type checkRow struct {
	queueRow
	Findings []findingRow `json:"findings"` // empty if there is no problem
}

// findingRow is one problem.
type findingRow struct {
	// Kind is messages, old, task, or unknown.
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// checks are the limits of dlq check.
type checks struct {
	maxMessages int64
	maxAge      time.Duration
	now         time.Time
}

func checkCommand(a *app) *cobra.Command {
	var s subjectFlags
	c := checks{}
	cmd := &cobra.Command{
		Use: "check [DLQ]", Short: "Find DLQs that need attention (exit code 3 if there are any)", Args: atMostOne("the name of one DLQ"), ValidArgsFunction: a.dlqNames,
		Long: `Check one DLQ, or all DLQs of the broker if none is named, and end with exit code 3 if there
is a problem: more messages than --max, a message that is in the DLQ for longer than
--max-age, a task that has not ended and that no process runs, or on RabbitMQ, without
--management-url, consumers that may hold messages, which are not counted.`,
		Example: "  redeliver dlq check --broker kafka://localhost:9092 --max-age 24h --output json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.maxMessages < 0 || c.maxAge < 0 {
				return usagef("--max and --max-age must be 0 or more")
			}
			c.now = time.Now()
			out := a.list(append(slices.Clone(queueColumns), "PROBLEMS")...)
			found, queues := 0, 0
			one := func(ctx context.Context, info deadletter.Info, q deadletter.Queue) error {
				if c.maxAge > 0 && q != nil {
					a.warnReadEffect(q)
				}
				row, err := c.checkDLQ(ctx, a, info, q)
				if err != nil {
					return err
				}
				queues++
				if len(row.Findings) > 0 {
					found++
				}
				return out.add(row, append(row.cells(), row.text())...)
			}
			var err error
			if len(args) == 0 && s.topic == "" && s.group == "" {
				ctx := cmd.Context()
				if err := a.listable(); err != nil {
					return err
				}
				err = a.withBroker(ctx, setup{}, func(b *broker) error {
					return b.eachDLQ(ctx, func(info deadletter.Info, q deadletter.Queue, err error) error {
						if err != nil {
							return fmt.Errorf("%s: %w", info.DLQ, err)
						}
						return one(ctx, info, q)
					})
				})
			} else {
				err = a.onDLQ(cmd, &s, args, func(ctx context.Context, q deadletter.Queue) error { return one(ctx, q.Info(), q) })
			}
			if err = errors.Join(err, out.end()); err != nil {
				return err
			}
			if found > 0 {
				return failed(codeFound, "%d of %d DLQs need attention", found, queues)
			}
			return nil
		},
	}
	s.flags(cmd.Flags())
	cmd.Flags().Int64Var(&c.maxMessages, "max", 0, "Report a DLQ with more than this `number` of messages")
	cmd.Flags().DurationVar(&c.maxAge, "max-age", 0, "Report messages that have been in the DLQ for longer than this `duration`; it reads every message (default off)")
	return cmd
}

// checkDLQ checks one DLQ. q is nil if the DLQ name has no topic and group.
func (c *checks) checkDLQ(ctx context.Context, a *app, info deadletter.Info, q deadletter.Queue) (checkRow, error) {
	queue, err := a.queueRowOf(ctx, info, q)
	row := checkRow{queue, []findingRow{}}
	if err != nil {
		return row, err
	}
	find := func(kind, format string, args ...any) {
		row.Findings = append(row.Findings, findingRow{kind, fmt.Sprintf(format, args...)})
	}
	if q == nil {
		find("unknown", "its name contains no topic and group: check it with --topic and --group")
		return row, nil
	}
	if n := *row.Messages; n > c.maxMessages {
		find("messages", "%d messages, more than the %d allowed", n, c.maxMessages)
	}
	if u, ok := q.(deadletter.Uncounter); ok {
		consumers, err := u.Uncounted(ctx)
		if err != nil {
			return row, err
		}
		if consumers > 0 {
			find("unknown", "%d consumers read it, and the messages that they hold unacked are not counted: give --management-url, or stop them", consumers)
		}
	}
	if c.maxAge > 0 {
		n, oldest, err := c.countOld(ctx, q)
		if err != nil {
			return row, err
		}
		if n > 0 {
			find("old", "%d messages are older than %s; the oldest arrived at %s", n, c.maxAge, timeText(oldest))
		}
	}
	tasks, err := deadletter.History(ctx, q)
	if err != nil {
		return row, err
	}
	for i := range tasks {
		if t := &tasks[i]; t.Resumable() {
			find("task", "%s %s is %s: resume or cancel it", t.Kind, t.ID, t.Status)
		}
	}
	return row, nil
}

func (c *checks) countOld(ctx context.Context, q deadletter.Queue) (n int64, oldest time.Time, err error) {
	for m, err := range deadletter.Browse(ctx, q, deadletter.Filter{}) {
		if err != nil {
			return n, oldest, err
		}
		if c.now.Sub(m.Time) > c.maxAge {
			n++
			if oldest.IsZero() || m.Time.Before(oldest) {
				oldest = m.Time
			}
		}
	}
	return n, oldest, nil
}

func (r *checkRow) text() string {
	texts := make([]string, len(r.Findings))
	for i, f := range r.Findings {
		texts[i] = f.Text
	}
	return strings.Join(texts, "; ")
}

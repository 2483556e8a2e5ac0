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

// checkRow is a DLQ with what was found in it.
type checkRow struct {
	queueRow
	Findings []findingRow `json:"findings"` // empty where all is well
}

// findingRow is one thing that somebody should see to.
type findingRow struct {
	// Kind is messages, old, task, unknown.
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// checks are what dlq check looks for.
type checks struct {
	most   int64
	oldest time.Duration
	now    time.Time
}

func (a *app) check() *cobra.Command {
	var s subjectFlags
	c := checks{}
	cmd := &cobra.Command{
		Use: "check [DLQ]", Short: "Find DLQs that somebody should see to: exit code 3", Args: atMostDLQ, ValidArgsFunction: a.dlqNames,
		Long: `check looks into one DLQ, or into all of the broker where none is named, and ends with
exit code 3 when it finds something: more messages than --max, one that has lain there for
longer than --max-age, a task that has neither ended nor a runner.`,
		Example: "  redeliver dlq check --broker kafka://localhost:9092 --max-age 24h --output json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.most < 0 || c.oldest < 0 {
				return usagef("--max and --max-age must not be negative")
			}
			c.now = time.Now()
			out := a.list(append(slices.Clone(queueColumns), "FINDINGS")...)
			found, queues := 0, 0
			one := func(ctx context.Context, info deadletter.Info, q deadletter.Queue) error {
				if c.oldest > 0 && q != nil {
					a.looking(q)
				}
				row, err := c.of(ctx, a, info, q)
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
				err = a.with(ctx, setup{}, func(b *broker) error {
					return b.each(ctx, func(info deadletter.Info, q deadletter.Queue, err error) error {
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
				return failed(codeFound, "%d of %d DLQs want looking at", found, queues)
			}
			return nil
		},
	}
	s.flags(cmd)
	cmd.Flags().Int64Var(&c.most, "max", 0, "the most messages that may lie in a DLQ")
	cmd.Flags().DurationVar(&c.oldest, "max-age", 0, "the longest that a message may lie there; 0 does not look at the messages")
	return cmd
}

// of looks into one DLQ. q is nil where it cannot be told whose it is.
func (c *checks) of(ctx context.Context, a *app, info deadletter.Info, q deadletter.Queue) (checkRow, error) {
	queue, err := a.queueRowOf(ctx, info, q)
	row := checkRow{queue, []findingRow{}}
	if err != nil {
		return row, err
	}
	find := func(kind, format string, args ...any) {
		row.Findings = append(row.Findings, findingRow{kind, fmt.Sprintf(format, args...)})
	}
	if q == nil {
		find("unknown", "its name does not say whose it is: check it with --topic and --group")
		return row, nil
	}
	if n := *row.Messages; n > c.most {
		find("messages", "%d messages, at most %d may lie here", n, c.most)
	}
	if c.oldest > 0 {
		n, oldest, err := c.old(ctx, q)
		if err != nil {
			return row, err
		}
		if n > 0 {
			find("old", "%d messages are older than %s, the oldest came at %s", n, c.oldest, at(oldest))
		}
	}
	tasks, err := deadletter.History(ctx, q)
	if err != nil {
		return row, err
	}
	for i := range tasks {
		if t := &tasks[i]; t.Resumable() {
			find("task", "the %s %s is %s: resume or cancel it", t.Kind, t.ID, t.Status)
		}
	}
	return row, nil
}

func (c *checks) old(ctx context.Context, q deadletter.Queue) (n int64, oldest time.Time, err error) {
	err = deadletter.Browse(ctx, q, deadletter.Filter{}, 0, func(m *deadletter.Message) bool {
		if c.now.Sub(m.Time) > c.oldest {
			n++
			if oldest.IsZero() || m.Time.Before(oldest) {
				oldest = m.Time
			}
		}
		return true
	})
	return n, oldest, err
}

func (r *checkRow) text() string {
	texts := make([]string, len(r.Findings))
	for i, f := range r.Findings {
		texts[i] = f.Text
	}
	return strings.Join(texts, "; ")
}

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

// forecastRow is what a replay or purge would do.
type forecastRow struct {
	DryRun     bool     `json:"dry_run"`
	DLQ        string   `json:"dlq"`
	Back       string   `json:"back,omitempty"` // where a replay would be sent
	Scanned    int64    `json:"scanned"`
	Matched    int64    `json:"matched"`
	Replay     int64    `json:"replay,omitempty"`     // would be sent
	Quarantine int64    `json:"quarantine,omitempty"` // were replayed too often
	Refuse     int64    `json:"refuse,omitempty"`     // name another group or origin
	Purge      int64    `json:"purge,omitempty"`      // would be removed
	Refusals   []string `json:"refusals,omitempty"`   // why, for the first few

	marks bool // a quarantine is forecast, not a purge
}

func (f *forecastRow) draw(c *card) {
	c.line("dlq", f.DLQ)
	c.line("back", f.Back)
	c.line("looked at", f.Scanned)
	c.line("taken", f.Matched)
	if f.Back != "" {
		c.line("would replay", f.Replay)
		c.line("would quarantine", f.Quarantine)
		c.line("would refuse", f.Refuse)
	} else if f.marks {
		c.line("would quarantine", f.Quarantine)
	} else {
		c.line("would remove", f.Purge)
	}
	for _, r := range f.Refusals {
		c.line("refusal", r)
	}
}

func (a *app) replay() *cobra.Command {
	var w workFlags
	var r deadletter.Replay
	cmd := &cobra.Command{
		Use: "replay [DLQ] --note WHY", Short: "Send messages of a DLQ back to the group that failed them", Args: atMostDLQ, ValidArgsFunction: a.dlqNames,
		Long: `replay sends what the flags take, and what lies in the DLQ now, back to the group that
failed it, and to no other. It is a task with an id: it is recorded before its first
message, dlq tasks shows it, and dlq pause, resume and cancel work from anywhere.

Ctrl-C pauses it (exit code 130), and it can be resumed. A message is taken out of the
DLQ when its copy is confirmed, so nothing is lost whatever happens; a runner that is
killed may leave at most --window duplicates.`,
		Example: `  redeliver dlq replay orders.billing.dlq --fingerprint 6f1d0c2b9a4e7713 --dry-run
  redeliver dlq replay orders.billing.dlq --fingerprint 6f1d0c2b9a4e7713 --canary 1,10,100 --rate 500 --note 'the bank is back'`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if r.Filter, err = a.chosen(&w); err != nil {
				return err
			}
			r.Who, r.Why = w.sign.who, w.sign.note
			if err := a.unasked(cmd, w.dry || w.yes); err != nil {
				return err
			}
			return a.onDLQ(cmd, &w.subject, args, func(ctx context.Context, q deadletter.Queue) error {
				if w.dry || !w.yes {
					row, err := a.forecast(ctx, q, r)
					if err != nil {
						return err
					}
					if w.dry {
						return a.one(row, row.draw)
					}
					if err := a.confirm(ctx, "y", "replay %d of %d messages in %s to %s? %d would be quarantined, %d refused.",
						row.Replay, row.Matched, row.DLQ, row.Back, row.Quarantine, row.Refuse); err != nil {
						return err
					}
				}
				return a.run(ctx, q, w.results, func(ctx context.Context, report deadletter.Report) (deadletter.Task, error) {
					r.Report = report
					return deadletter.Run(ctx, q, r)
				})
			})
		},
	}
	w.flags(cmd, "say how many and where to, and change nothing")
	flags := cmd.Flags()
	w.filter.chooser(flags)
	flags.Float64Var(&r.Rate, "rate", 0, "at most so many messages a second (default no bound)")
	flags.IntSliceVar(&r.Canary, "canary", nil, "the `sizes` of the steps in which it begins: 1,10,100; after each the DLQ is watched, and the task stops when what it sent comes back")
	flags.DurationVar(&r.Watch, "watch", deadletter.DefaultWatch, "how long the DLQ is watched after each step of the canary")
	flags.IntVar(&r.Window, "window", deadletter.DefaultWindow, "how many may be sent and not yet recorded: as many duplicates a crash may leave")
	flags.IntVar(&r.MaxReplays, "max-replays", deadletter.DefaultMaxReplays, "a message that was replayed so often is quarantined")
	return cmd
}

func (a *app) forecast(ctx context.Context, q deadletter.Queue, r deadletter.Replay) (*forecastRow, error) {
	a.looking(q)
	f, err := deadletter.DryRun(ctx, q, r)
	if err != nil {
		return nil, err
	}
	return &forecastRow{
		DryRun: true, DLQ: q.Info().DLQ, Back: f.Back, Scanned: f.Scanned, Matched: f.Matched, Replay: f.Replay, Quarantine: f.Quarantine,
		Refuse: f.Refuse, Refusals: f.Refusals,
	}, nil
}

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/deadletter"
)

// forecastRow is the forecast of a replay or purge.
type forecastRow struct {
	DryRun   bool     `json:"dry_run"`
	DLQ      string   `json:"dlq"`
	ReplayTo string   `json:"replay_to,omitempty"` // where a replay would send the messages
	Scanned  int64    `json:"scanned"`
	Matched  int64    `json:"matched"`
	Replay   int64    `json:"replay,omitempty"`   // messages that would be sent
	Skip     int64    `json:"skip,omitempty"`     // messages that were replayed too often already
	Refuse   int64    `json:"refuse,omitempty"`   // messages that name another group or origin
	Purge    int64    `json:"purge,omitempty"`    // messages that would be removed
	Refusals []string `json:"refusals,omitempty"` // the reasons of the first few refusals
	About    bool     `json:"about,omitempty"`    // the numbers may be too high, because they count offsets

	verbs []string // the rows of the table
}

func (f *forecastRow) draw(c *details) {
	c.line("dlq", f.DLQ)
	c.line("replay to", f.ReplayTo)
	c.line("scanned", f.Scanned)
	c.line("matched", f.Matched)
	for _, verb := range f.verbs {
		c.line("would "+verb, map[string]int64{"replay": f.Replay, "skip": f.Skip, "refuse": f.Refuse, "remove": f.Purge}[verb])
	}
	if f.About {
		c.line("counted", "by offsets: the numbers may be too high")
	}
	for _, r := range f.Refusals {
		c.line("refusal", r)
	}
}

func replayCommand(a *app) *cobra.Command {
	var r deadletter.ReplayOptions
	return workCommand(a, &work{
		use: "replay [DLQ] --note TEXT", short: "Send messages back to the consumer group that failed them",
		long: `Send messages of a DLQ back to the consumer group that failed them, and to no other group.

The filter selects among the messages that are in the DLQ now. A replay is a task with an
id. It is recorded before its first message, "dlq tasks" lists it, and "dlq pause",
"dlq resume" and "dlq cancel" control it from any machine.

Ctrl-C pauses a replay (exit code 130). A message leaves the DLQ only when its copy is
confirmed, so a replay loses nothing. If its process is killed, at most --window messages
are sent twice.`,
		example: `  redeliver dlq replay orders.billing.dlq --fingerprint 6f1d0c2b9a4e7713 --dry-run
  redeliver dlq replay orders.billing.dlq --fingerprint 6f1d0c2b9a4e7713 --canary 1,10,100 --rate 500 --note 'the bank is back'`,
		flags: func(flags *pflag.FlagSet) {
			flags.Float64Var(&r.Rate, "rate", 0, "Send at most this `number` of messages per second (default no limit)")
			flags.IntSliceVar(&r.Canary, "canary", nil, "Begin with steps of these `sizes`, as in 1,10,100. After each step the replay watches the DLQ and stops when what it sent comes back")
			flags.DurationVar(&r.Watch, "watch", deadletter.DefaultWatch, "Watch the DLQ for this `duration` after each step of --canary")
			flags.IntVar(&r.Window, "window", deadletter.DefaultWindow, "Send at most this `number` of messages before they are recorded. It bounds the duplicates after a crash")
			flags.IntVar(&r.MaxReplays, "max-replays", deadletter.DefaultMaxReplays, "Skip a message that was already replayed this `number` of times")
		},
		check: func(deadletter.Filter) error { return nil },
		forecast: func(ctx context.Context, q deadletter.Queue, filter deadletter.Filter) (*forecastRow, error) {
			r.Filter = filter
			f, err := deadletter.DryRun(ctx, q, r)
			if err != nil {
				return nil, err
			}
			return &forecastRow{
				DryRun: true, DLQ: q.Info().DLQ, ReplayTo: f.ReplayTo, Scanned: f.Scanned, Matched: f.Matched, Replay: f.Replay, Skip: f.Skip,
				Refuse: f.Refuse, Refusals: f.Refusals, verbs: []string{"replay", "skip", "refuse"},
			}, nil
		},
		ask: func(f *forecastRow) (question, answer string) {
			return fmt.Sprintf("Replay %d of %d messages in %s to %s? %d were replayed too often and stay, and %d would be refused.", f.Replay, f.Matched, f.DLQ, f.ReplayTo, f.Skip, f.Refuse), "y"
		},
		run: func(ctx context.Context, q deadletter.Queue, f deadletter.Filter, s signature, report deadletter.Report) (deadletter.Task, error) {
			r.Filter, r.Who, r.Why, r.Report = f, s.who, s.note, report
			return deadletter.Replay(ctx, q, r)
		},
	})
}

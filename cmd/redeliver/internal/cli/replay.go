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

	// With --through: the number of messages of Replay that the program changes, and the first ten of them.
	Changed int64              `json:"changed,omitempty"`
	Changes []*deadletter.Diff `json:"changes,omitempty"`

	verbs []string // the rows of the table
}

func (f *forecastRow) draw(c *details) {
	c.line("dlq", f.DLQ)
	c.line("replay to", f.ReplayTo)
	c.line("scanned", f.Scanned)
	c.line("matched", f.Matched)
	for _, verb := range f.verbs {
		c.line("would "+verb, map[string]int64{"replay": f.Replay, "change": f.Changed, "skip": f.Skip, "refuse": f.Refuse, "remove": f.Purge}[verb])
	}
	if f.About {
		c.line("counted", "by offsets: the numbers may be too high")
	}
	for _, r := range f.Refusals {
		c.line("refusal", r)
	}
	for _, d := range f.Changes {
		one := &details{}
		drawDiff(one, d)
		c.text("change", one.String())
	}
}

func replayCommand(a *app) *cobra.Command {
	var r deadletter.ReplayOptions
	var program throughFlags
	var alone unattendedFlags
	return workCommand(a, &work{
		use: "replay [DLQ] --note TEXT", short: "Send messages back to the consumer group that failed them",
		long: `Send messages of a DLQ back to the consumer group that failed them, and to no other group.

The filter selects among the messages that are in the DLQ now. A replay is a task with an
id. It is recorded before its first message, "dlq tasks" lists it, and "dlq pause",
"dlq resume" and "dlq cancel" control it from any machine.

Ctrl-C pauses a replay (exit code 130). A message leaves the DLQ only when its copy is
confirmed, so a replay loses nothing. If its process is killed, at most --window messages
are sent twice.

--through changes each message with a command of the shell. It gets the message as a line of
JSON, as "dlq show -o jsonl" prints it, and must write it, changed or not, and end with 0.
Otherwise, or when it changes the key or the id, the message stays in the DLQ and counts as
refused. --dry-run shows the first ten changes.

--unattended is for a job: it asks nothing, replays each cause as a task of its own, and ends
the tasks that earlier runs have left. Exit codes: 0 nothing is left to replay, or it is not
the time; 3 a canary stopped a cause; 5 the time was over, or messages were refused.`,
		example: `  redeliver dlq replay orders.billing.dlq --fingerprint 6f1d0c2b9a4e7713 --dry-run
  redeliver dlq replay orders.billing.dlq --fingerprint 6f1d0c2b9a4e7713 --canary 1,10,100 --rate 500 --note 'the bank is back'
  redeliver dlq replay orders.billing.dlq --body-text EURO --through 'sed s/EURO/EUR/g' --dry-run
  redeliver dlq replay orders.billing.dlq --unattended --canary 5 --max-replays 3 --between 08:00-18:00`,
		flags: func(flags *pflag.FlagSet) {
			flags.Float64Var(&r.Rate, "rate", 0, "Send at most this `number` of messages per second (default no limit)")
			flags.IntSliceVar(&r.Canary, "canary", nil, "Begin with steps of these `sizes`, as in 1,10,100. After each step the replay watches the DLQ and stops when what it sent comes back")
			flags.DurationVar(&r.Watch, "watch", deadletter.DefaultWatch, "Watch the DLQ for this `duration` after each step of --canary")
			flags.IntVar(&r.Window, "window", deadletter.DefaultWindow, "Send at most this `number` of messages before they are recorded. It bounds the duplicates after a crash")
			flags.IntVar(&r.MaxReplays, "max-replays", deadletter.DefaultMaxReplays, "Skip a message that was already replayed this `number` of times")
			program.flags(flags)
			alone.flags(flags)
		},
		check: func(deadletter.Filter) (err error) {
			if r.Change, err = program.change(); err != nil {
				return err
			}
			return alone.check(&r)
		},
		alone: func() bool { return alone.on },
		runAlone: func(ctx context.Context, q deadletter.Queue, f deadletter.Filter, s signature, report deadletter.Report) error {
			r.Filter, r.Who, r.Why, r.Report = f, s.who, s.note, report
			return a.runUnattended(ctx, q, r, alone.window)
		},
		forecast: func(ctx context.Context, q deadletter.Queue, filter deadletter.Filter) (*forecastRow, error) {
			r.Filter = filter
			f, err := deadletter.DryRun(ctx, q, r)
			if err != nil {
				return nil, err
			}
			row := &forecastRow{
				DryRun: true, DLQ: q.Info().DLQ, ReplayTo: f.ReplayTo, Scanned: f.Scanned, Matched: f.Matched, Replay: f.Replay, Skip: f.Skip,
				Refuse: f.Refuse, Refusals: f.Refusals, verbs: []string{"replay", "skip", "refuse"}, Changed: f.Changed,
			}
			if r.Change != nil {
				row.verbs = []string{"replay", "change", "skip", "refuse"}
			}
			for _, c := range f.Changes {
				row.Changes = append(row.Changes, c.Diff())
			}
			return row, nil
		},
		ask: func(f *forecastRow) (question, answer string) {
			changed := ""
			if r.Change != nil {
				changed = fmt.Sprintf(" The program changes %d of them; --dry-run shows how.", f.Changed)
			}
			return fmt.Sprintf("Replay %d of %d messages in %s to %s?%s %d were replayed too often and stay, and %d would be refused.", f.Replay, f.Matched, f.DLQ, f.ReplayTo, changed, f.Skip, f.Refuse), "y"
		},
		run: func(ctx context.Context, q deadletter.Queue, f deadletter.Filter, s signature, report deadletter.Report) (deadletter.Task, error) {
			r.Filter, r.Who, r.Why, r.Report = f, s.who, s.note, report
			return deadletter.Replay(ctx, q, r)
		},
	})
}

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
)

// waitingForecast is what a release or cancel would take.
type waitingForecast struct {
	DryRun  bool   `json:"dry_run"`
	Kind    string `json:"kind"` // release, cancel
	Origin  string `json:"origin"`
	Group   string `json:"group"`
	Scanned int64  `json:"scanned"`
	Matched int64  `json:"matched"`
}

func (a *app) waitingCommand(kind deadletter.CommandKind) *cobra.Command {
	var w waitingFlags
	var sign signFlags
	var c deadletter.Command
	var life time.Duration
	var dry, yes bool
	verb, short, long, example := "release", "Make messages that wait due now (Kafka)", `release makes what waits on the levels that the flags name due now: they run as fast as the
consumers take them. It takes whole levels, and is refused where the Order of the policy
is PerKey. To take single messages out, cancel them and replay them from the DLQ.`,
		`  redeliver waiting release --topic orders --group billing --level 1h --note 'the bank is back'
  redeliver waiting release --topic orders --group billing --all --dry-run`
	if kind == deadletter.CancelWaiting {
		verb, short, long, example = "cancel", "Send waiting messages to the DLQ when they are due (Kafka)", `cancel keeps what the flags take from running: when such a message is due it goes to the
DLQ, as invalidated. A message that was released is due now.`,
			`  redeliver waiting cancel --topic orders --group billing --fingerprint 6f1d0c2b9a4e7713 --dry-run
  redeliver waiting cancel --topic orders --group billing --header tenant=acme --note 'the tenant is gone'`
	}
	cmd := &cobra.Command{
		Use: verb + " --topic T --group G --note WHY", Short: short, Args: exactly(),
		Long: long + `

Only what was scheduled before the command is taken. The group's consumers read it within
a second or two. It stands for as long as --for says; waiting withdraw takes it back.`,
		Example: example,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if c.Filter, err = w.filter(); err != nil {
				return err
			}
			if err := a.sign(&sign, dry); err != nil {
				return err
			}
			c.Kind, c.Who, c.Why = kind, sign.who, sign.note
			switch {
			case c.Filter.All() && !c.Everything:
				return usagef("that would %s everything: say what is meant, or give --all", verb)
			case !c.Filter.All() && c.Everything:
				return usagef("--all beside flags that say what is meant: leave one out")
			case life <= 0:
				return usagef("--for is %s: it must be longer than nothing", life)
			}
			c.Expires = time.Now().Add(life).UTC().Truncate(time.Millisecond)
			if !dry {
				if err := a.unasked(cmd, yes); err != nil {
					return err
				}
			}
			return a.onCommands(cmd, &w, func(ctx context.Context, at *kafka.Waiting, of subject) error {
				if dry {
					return a.forecastWaiting(ctx, at, of, &c)
				}
				return a.give(ctx, at, of, c, yes)
			})
		},
	}
	w.whose(cmd)
	if kind == deadletter.CancelWaiting {
		w.filters(cmd)
	} else {
		w.onLevels(cmd)
	}
	sign.flags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&c.Everything, "all", false, "everything that waits, where no other flag says what is meant")
	flags.DurationVar(&life, "for", deadletter.DefaultCommandLife, "how long the command stands; give more where messages wait for longer")
	flags.BoolVar(&dry, "dry-run", false, "say how many, and change nothing; for a cancel this reads all that waits")
	yesFlag(cmd, &yes)
	return cmd
}

// forecastWaiting counts what a command would take.
func (a *app) forecastWaiting(ctx context.Context, w *kafka.Waiting, of subject, c *deadletter.Command) error {
	row := waitingForecast{DryRun: true, Kind: string(c.Kind), Origin: of.topic, Group: of.group}
	if c.Kind == deadletter.ReleaseWaiting {
		levels, err := w.Levels(ctx)
		if err != nil {
			return err
		}
		for _, l := range levels {
			if row.Scanned += l.Depth; c.Filter.OnLevel(l.Level) {
				row.Matched += l.Depth
			}
		}
	} else if err := w.Browse(ctx, deadletter.WaitingFilter{}, 0, func(at deadletter.WaitingLevel, m *deadletter.Message) bool {
		row.Scanned++
		if c.Filter.Match(m, at.Level) {
			row.Matched++
		}
		return true
	}); err != nil {
		return err
	}
	return a.one(row, func(c *card) {
		c.line("topic", row.Origin)
		c.line("group", row.Group)
		c.line("looked at", row.Scanned)
		c.line("would "+row.Kind, row.Matched)
	})
}

// give asks, and gives the consumers the command.
func (a *app) give(ctx context.Context, w *kafka.Waiting, of subject, c deadletter.Command, yes bool) error {
	if !yes {
		levels, err := w.Levels(ctx)
		if err != nil {
			return err
		}
		var n int64
		for _, l := range levels {
			n += max(0, l.Depth)
		}
		if err := a.confirm(ctx, "y", "%s what is taken of %d messages that wait for group %s of %s? How many that are, --dry-run says.", c.Kind, n, of.group, of.topic); err != nil {
			return err
		}
	}
	given, err := w.Command(ctx, c)
	if err != nil {
		return err
	}
	a.sayf("given: the consumers read it within a second or two; see what still waits with: redeliver waiting list --topic %s --group %s", of.topic, of.group)
	return a.oneCommand(commandRowOf(of, &given, time.Now()))
}

func (a *app) oneCommand(row commandRow) error {
	return a.one(row, func(c *card) {
		c.line("command", row.ID)
		c.line("kind", row.Kind)
		c.line("status", row.Status)
		c.line("topic", row.Origin)
		c.line("group", row.Group)
		c.line("expires", row.Expires)
	})
}

func (a *app) withdraw() *cobra.Command {
	var w waitingFlags
	cmd := &cobra.Command{
		Use: "withdraw COMMAND --topic T --group G", Short: "Take a release or cancel back; what it has done stays done", Args: exactly("the id of a command"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onCommands(cmd, &w, func(ctx context.Context, at *kafka.Waiting, of subject) error {
				all, err := at.Commands(ctx)
				if err != nil {
					return err
				}
				if err := at.Withdraw(ctx, args[0]); err != nil {
					return err
				}
				for i := range all {
					if all[i].ID == args[0] {
						row := commandRowOf(of, &all[i], time.Now())
						row.Status = "withdrawn"
						return a.oneCommand(row)
					}
				}
				return nil
			})
		},
	}
	w.whose(cmd)
	return cmd
}

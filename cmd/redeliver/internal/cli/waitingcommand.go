package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// waitingForecast is the forecast of a release or cancel.
type waitingForecast struct {
	DryRun  bool   `json:"dry_run"`
	Kind    string `json:"kind"` // release, cancel
	Origin  string `json:"origin"`
	Group   string `json:"group"`
	Scanned int64  `json:"scanned"`
	Matched int64  `json:"matched"`
}

func controlCommand(a *app, kind deadletter.CommandKind) *cobra.Command {
	var w waitingFlags
	var sign signature
	var c deadletter.Command
	var dry, yes bool
	verb, short, long, example := "release", "Make waiting messages due now (Kafka, RabbitMQ)", `Make messages that wait due now. They run as fast as the consumers take them.

A release takes whole levels. On Kafka it is refused with --order through-retries.
To run single messages there now, cancel them and replay them from the DLQ.

On RabbitMQ this command moves the messages itself, and it is done when it returns. If it is
killed, run it again: no message is lost, and at most 1,000 run twice. Messages on levels of up
to a minute that a consumer has read stay there. Without --management-url, name the levels.`,
		`  redeliver waiting release --topic orders --group billing --level 1h --note 'the bank is back'
  redeliver waiting release --topic orders --group billing --all --dry-run`
	if kind == deadletter.CommandCancel {
		verb, short, long, example = "cancel", "Send waiting messages to the DLQ when they are due (Kafka)", `Send messages to the DLQ when they are due, with the reason "invalidated", instead of running
them. A message that was released is due now.`,
			`  redeliver waiting cancel --topic orders --group billing --fingerprint 6f1d0c2b9a4e7713 --dry-run
  redeliver waiting cancel --topic orders --group billing --header tenant=acme --note 'the tenant is gone'`
	}
	cmd := &cobra.Command{
		Use: verb + " --topic TOPIC [--group GROUP] --note TEXT", Short: short, Args: exactly(),
		Long: long + `

On Kafka, the command applies to messages that were scheduled before it. The consumers of the
group read it within ten seconds. It ends after 30 days; until then "waiting list" names it.`,
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
				return usagef("no filter given, so this would %s everything: give a filter flag, or --all", verb)
			case !c.Filter.All() && c.Everything:
				return usagef("--all and a filter flag exclude each other: omit one")
			}
			if err := a.supported("waiting " + verb); err != nil {
				return err
			}
			if err := a.checkConfirmable(cmd, dry || yes); err != nil {
				return err
			}
			policy, err := a.policyOfLevels(&c)
			if err != nil {
				return err
			}
			return a.onWaiting(cmd, &w, setup{policy: policy}, func(ctx context.Context, _ *broker, at *waiting, of subject) error {
				if dry {
					return a.forecastWaiting(ctx, at, of, &c)
				}
				return a.confirmAndSend(ctx, at, of, c, yes)
			})
		},
	}
	w.flags(cmd, kind == deadletter.CommandCancel)
	cmd.Flags().BoolVar(&c.Everything, "all", false, "Take all waiting messages. Without it a filter flag is required")
	preview := "Count the messages and change nothing"
	if kind == deadletter.CommandCancel {
		preview += ". It reads all waiting messages"
	}
	grouped(cmd.Flags(), groupChange, func(flags *pflag.FlagSet) {
		sign.flags(flags)
		flags.BoolVar(&dry, "dry-run", false, preview)
		yesFlag(flags, &yes)
	})
	return cmd
}

// forecastWaiting counts the messages that a command would affect.
func (p *printer) forecastWaiting(ctx context.Context, w *waiting, of subject, c *deadletter.Command) error {
	row := waitingForecast{DryRun: true, Kind: string(c.Kind), Origin: of.topic, Group: of.group}
	if c.Kind == deadletter.CommandRelease {
		levels, err := w.levels(ctx)
		if err != nil {
			return err
		}
		for _, l := range levels {
			if row.Scanned += l.Depth; c.Filter.MatchLevel(l.Level) && (w.release == nil || l.Level > 0) { // a release skips the retry queue
				row.Matched += l.Depth
			}
		}
	} else {
		for m, err := range w.commands.Browse(ctx, deadletter.WaitingFilter{}) {
			if err != nil {
				return err
			}
			row.Scanned++
			if c.Filter.Match(m.Message, m.Level) {
				row.Matched++
			}
		}
	}
	return p.printOne(row, func(c *details) {
		c.line("topic", row.Origin)
		c.line("group", row.Group)
		c.line("scanned", row.Scanned)
		c.line("would "+row.Kind, row.Matched)
	})
}

// confirmAndSend asks for confirmation, and sends or carries out the command.
func (a *app) confirmAndSend(ctx context.Context, w *waiting, of subject, c deadletter.Command, yes bool) error {
	if !yes {
		kind := strings.ToUpper(string(c.Kind[:1])) + string(c.Kind[1:])
		levels, err := w.levels(ctx)
		if err != nil {
			return err
		}
		var n int64
		for _, l := range levels {
			n += max(0, l.Depth)
		}
		if err := a.confirm(ctx, "y", fmt.Sprintf("%s those that match of %d messages that wait for %s? --dry-run counts them.", kind, n, of.reader())); err != nil {
			return err
		}
	}
	if w.release != nil {
		return a.releaseNow(ctx, w, of, &c)
	}
	sent, err := w.commands.SendCommand(ctx, c)
	if err != nil {
		return err
	}
	a.sayf("sent: the consumers read it within ten seconds. To see what still waits: redeliver waiting list --topic %s --group %s", of.topic, of.group)
	row := commandRowOf(of, &sent)
	return a.printOne(row, func(c *details) {
		c.line("command", row.ID)
		c.line("kind", row.Kind)
		c.line("topic", row.Origin)
		c.line("group", row.Group)
		c.line("expires", row.Expires)
	})
}

// releaseRow is the result of a release that does not use a command.
type releaseRow struct {
	Kind     string   `json:"kind"`   // release
	Status   string   `json:"status"` // done, failed
	Origin   string   `json:"origin"`
	Who      string   `json:"who"`
	Note     string   `json:"note"`
	Levels   []string `json:"levels,omitempty"` // absent for all
	Released int64    `json:"released"`
}

// releaseNow moves the waiting messages and prints how many it has moved.
func (a *app) releaseNow(ctx context.Context, w *waiting, of subject, c *deadletter.Command) error {
	row := releaseRow{Kind: string(c.Kind), Status: "done", Origin: of.topic, Who: c.Who, Note: c.Why, Levels: c.Filter.Levels}
	var err error
	row.Released, err = w.release(ctx, levelsOf(c))
	if err != nil {
		row.Status = "failed"
	}
	return errors.Join(err, a.printOne(row, func(c *details) {
		c.line("kind", row.Kind)
		c.line("status", state(row.Status))
		c.line("topic", row.Origin)
		c.line("released", row.Released)
	}))
}

func levelsOf(c *deadletter.Command) (levels []time.Duration) {
	for _, name := range c.Filter.Levels {
		if level, ok := delayqueue.ParseLevel(name); ok {
			levels = append(levels, level)
		}
	}
	return levels
}

// policyOfLevels returns a policy with the levels of a release. RabbitMQ needs it to find them, because AMQP cannot
// list queues.
func (a *app) policyOfLevels(c *deadletter.Command) (p redeliver.Policy, err error) {
	u, err := a.conn.url(a.Env)
	if err != nil || u.Broker != brokerurl.RabbitMQ {
		return p, err
	}
	api, err := a.conn.managementURL(a.Env, u)
	if err != nil {
		return p, err
	}
	levels := slices.Compact(slices.Sorted(slices.Values(levelsOf(c)))) // a policy's levels are sorted and unique
	switch {
	case len(levels) > 0:
		p.MaxRetries, p.Levels, p.Backoff = len(levels), levels, redeliver.Steps(levels...)
	case api == "":
		return p, usagef("AMQP cannot list queues: give --management-url http://host:15672, or name the levels with --level")
	}
	return p, nil
}

// commandRow is a command to the consumers of a group.
type commandRow struct {
	ID      string                    `json:"id"`
	Kind    string                    `json:"kind"` // release, cancel
	Origin  string                    `json:"origin"`
	Group   string                    `json:"group"`
	Who     string                    `json:"who"`
	Note    string                    `json:"note"`
	Created time.Time                 `json:"created"` // it affects messages that were scheduled earlier
	Expires time.Time                 `json:"expires"`
	Filter  *deadletter.WaitingFilter `json:"filter,omitempty"` // absent if it affects all messages
}

func commandRowOf(of subject, c *deadletter.Command) commandRow {
	row := commandRow{
		ID: c.ID, Kind: string(c.Kind), Origin: of.topic, Group: of.group, Who: c.Who, Note: c.Why, Created: c.Created.UTC(), Expires: c.Expires.UTC(),
	}
	if !c.Everything {
		row.Filter = &c.Filter
	}
	return row
}

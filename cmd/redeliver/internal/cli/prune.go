package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/doctor"
)

// oldLevelRow is the result for a level of an older policy.
type oldLevelRow struct {
	Broker   string `json:"broker"`
	Origin   string `json:"origin"`          // the topic or queue
	Group    string `json:"group,omitempty"` // Kafka only
	Place    string `json:"place"`           // the topic or queue of the level
	Level    string `json:"level,omitempty"` // such as 1h
	Messages *int64 `json:"messages,omitempty"`
	Drained  bool   `json:"drained"`        // no message waits on it, and no member's policy has it
	Removed  bool   `json:"removed"`        // false with --dry-run
	Keep     string `json:"keep,omitempty"` // why it was not removed
}

// oldLevels finds and removes the levels of older policies.
type oldLevels struct {
	find   func(ctx context.Context, topic string) ([]doctor.OldLevel, error)
	remove func(ctx context.Context, topic string, places ...string) ([]doctor.OldLevel, error)
}

func pruneCommand(a *app) *cobra.Command {
	var of subscriptionFlags
	var dry, yes bool
	cmd := &cobra.Command{
		Use: "prune --topic TOPIC [--group GROUP]", Short: "Remove empty delay topics or queues of an older policy", Args: exactly(),
		Long: `Remove the delay topics or queues that an older policy of a subscription used and this
policy does not. Give the policy of the service with the same flags as for plan.

prune removes only those that are empty and that no member of the group uses. It checks each
one again just before it removes it. If some remain, it says why and ends with exit code 5.

prune cannot see a program that only publishes with a delay under an older policy. Stop such
programs first.`,
		Example: `  redeliver prune --broker kafka://localhost:9092 --topic orders --group billing --retries 5 --backoff steps:10s,1m,1h --dry-run
  redeliver prune --broker amqp://localhost --management-url http://localhost:15672 --topic orders --backoff rocketmq --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !of.policy.given(cmd.Flags()) {
				return usagef("no policy given: describe the policy that the service runs, for example with --retries and --backoff; every level that it does not use is old")
			}
			to, _, err := a.subscription(cmd, &of)
			if err != nil {
				return err
			}
			if err := a.checkConfirmable(cmd, dry || yes); err != nil {
				return err
			}
			return a.withBroker(cmd.Context(), to, func(b *broker) error {
				return a.pruneOn(cmd.Context(), b, of.topic, to.group, dry, yes)
			})
		},
	}
	of.flags(cmd)
	grouped(cmd.Flags(), groupChange, func(flags *pflag.FlagSet) {
		flags.BoolVar(&dry, "dry-run", false, "List the levels that would be removed and change nothing")
		yesFlag(flags, &yes)
	})
	return cmd
}

// pruneOn finds old levels, asks, removes the empty ones, and prints the result for each.
func (a *app) pruneOn(ctx context.Context, b *broker, topic, group string, dry, yes bool) error {
	found, err := b.old.find(ctx, topic)
	if err != nil {
		return brokerError(err)
	}
	var drained []string
	for _, o := range found {
		if o.KeepReason == "" {
			drained = append(drained, o.Place)
		}
	}
	if !dry && len(drained) > 0 {
		if !yes {
			if err := a.confirm(ctx, "y", fmt.Sprintf("Remove %d empty levels of %s for good? %v", len(drained), topic, drained)); err != nil {
				return err
			}
		}
		done, failure := b.old.remove(ctx, topic, drained...)
		for _, d := range done { // the state at the last check
			for i := range found {
				if found[i].Place == d.Place {
					found[i] = d
				}
			}
		}
		err = failure
	}
	out := a.list("PLACE", "LEVEL", "MESSAGES", "OUTCOME", "WHY")
	stay := 0
	for _, o := range found {
		row := oldLevelRow{
			Broker: string(b.kind), Origin: topic, Group: group, Place: o.Place, Level: levelText(o.Level), Messages: countOrNil(o.Messages),
			Drained: o.KeepReason == "", Removed: o.Removed, Keep: o.KeepReason,
		}
		outcome := "remains"
		switch {
		case o.Removed:
			outcome = "removed"
		case dry && o.KeepReason == "":
			outcome = "would be removed"
		case !dry:
			stay++
		}
		messages := any("-")
		if o.Messages >= 0 {
			messages = o.Messages
		}
		if bad := out.add(row, o.Place, row.Level, messages, state(outcome), o.KeepReason); bad != nil {
			return bad
		}
	}
	if bad := out.end(); bad != nil {
		return bad
	}
	switch {
	case err != nil:
		return brokerError(err)
	case stay > 0:
		return failed(codePartly, "%d of %d levels of an older policy remain", stay, len(found))
	case len(found) == 0:
		a.sayf("%s has no levels of an older policy", topic)
	}
	return nil
}

package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/delayqueue"
)

// oldLevelRow is what became of a level that an older policy has left.
type oldLevelRow struct {
	Broker   string `json:"broker"`
	Origin   string `json:"origin"`          // the topic or queue
	Group    string `json:"group,omitempty"` // of Kafka
	Place    string `json:"place"`           // the topic or queue of the level
	Level    string `json:"level,omitempty"` // 1h
	Messages *int64 `json:"messages,omitempty"`
	Drained  bool   `json:"drained"`        // nothing waits on it, and no member runs a policy that has it
	Removed  bool   `json:"removed"`        // with --dry-run never
	Keep     string `json:"keep,omitempty"` // why it stays
}

// oldLevels finds what a policy has left, and removes it.
type oldLevels struct {
	find   func(ctx context.Context, topic string) ([]delayqueue.OldLevel, error)
	remove func(ctx context.Context, topic string, places ...string) ([]delayqueue.OldLevel, error)
}

func (a *app) prune() *cobra.Command {
	var p policyFlags
	var topic, group string
	var dry, yes bool
	cmd := &cobra.Command{
		Use: "prune --topic T [--group G]", Short: "Remove the levels that an older policy has left, when they are drained", Args: exactly(),
		Long: `prune removes the delay topics or queues of a subscription that its policy, which the
flags give as for plan, does not have: an older one has left them. Only those that are
drained: nothing waits there, and every member of the group says that it runs this
policy. Each is looked at again just before. The others stay, and it says why: exit
code 5.

Who publishes with a delay, under an older policy, and is no member, the broker does not
know: none may run.`,
		Example: `  redeliver prune --broker kafka://localhost:9092 --topic orders --group billing --retries 5 --backoff steps:10s,1m,1h --dry-run
  redeliver prune --broker amqp://localhost --management-url http://localhost:15672 --topic orders --backoff rocketmq --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			policy, err := p.policy(cmd.Flags())
			if err != nil {
				return err
			}
			switch {
			case topic == "":
				return usagef("which topic, or queue? give --topic")
			case !p.given(cmd.Flags()):
				return usagef("which policy does the service run? give the flags of plan: --retries, --backoff, --levels and so on; without them nobody knows which levels are old")
			}
			if !dry {
				if err := a.unasked(cmd, yes); err != nil {
					return err
				}
			}
			u, err := a.conn.url(a.Env) // reads the profile
			if err != nil {
				return err
			}
			if err := noGroup(u.Broker, group); err != nil {
				return err
			}
			group = cmp.Or(group, a.conn.read.Group)
			return a.with(cmd.Context(), setup{group: group, policy: policy}, func(b *broker) error {
				if b.old == nil {
					return failed(codeFailed, "there are no levels on %s: what waits, waits in the queue itself", called(b.kind))
				}
				return a.pruneOn(cmd.Context(), b, topic, group, dry, yes)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&topic, "topic", "", "the `topic` that is consumed; on RabbitMQ the queue (required)")
	flags.StringVar(&group, "group", "", "the consumer `group` (on Kafka required; elsewhere there is none)")
	flags.BoolVar(&dry, "dry-run", false, "say which would go, and change nothing")
	yesFlag(cmd, &yes)
	p.flags(flags)
	return cmd
}

// pruneOn looks, asks, removes, and says what became of each.
func (a *app) pruneOn(ctx context.Context, b *broker, topic, group string, dry, yes bool) error {
	found, err := b.old.find(ctx, topic)
	if err != nil {
		return failed(codeOf(err), "%w", err)
	}
	var drained []string
	for _, o := range found {
		if o.Keep == "" {
			drained = append(drained, o.Place)
		}
	}
	if !dry && len(drained) > 0 {
		if !yes {
			if err := a.confirm(ctx, "y", "remove %d drained levels of %s for good? %v", len(drained), topic, drained); err != nil {
				return err
			}
		}
		done, failure := b.old.remove(ctx, topic, drained...)
		for _, d := range done { // as they were looked at last
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
			Broker: string(b.kind), Origin: topic, Group: group, Place: o.Place, Level: level(o.Level), Messages: known(o.Messages),
			Drained: o.Keep == "", Removed: o.Removed, Keep: o.Keep,
		}
		outcome := "stays"
		switch {
		case o.Removed:
			outcome = "removed"
		case dry && o.Keep == "":
			outcome = "would go"
		case !dry:
			stay++
		}
		messages := any("-")
		if o.Messages >= 0 {
			messages = o.Messages
		}
		if bad := out.add(row, o.Place, row.Level, messages, outcome, o.Keep); bad != nil {
			return bad
		}
	}
	if bad := out.end(); bad != nil {
		return bad
	}
	switch {
	case err != nil:
		return failed(codeOf(err), "%w", err)
	case stay > 0:
		return failed(codePartly, "%d of %d levels of an older policy stay", stay, len(found))
	case len(found) == 0:
		a.sayf("%s has no level that this policy does not have", topic)
	}
	return nil
}

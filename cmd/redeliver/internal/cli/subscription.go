package cli

import (
	"cmp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/internal/brokerurl"
)

// subscriptionFlags are the topic, the group and the policy of plan, doctor and prune.
type subscriptionFlags struct {
	topic, group string
	policy       policyFlags
}

func (s *subscriptionFlags) flags(cmd *cobra.Command) {
	grouped(cmd.Flags(), groupSubscription, func(flags *pflag.FlagSet) { whoseFlags(flags, &s.topic, &s.group) })
	s.policy.flags(cmd)
}

// whoseFlags adds --topic and --group.
func whoseFlags(flags *pflag.FlagSet, topic, group *string) {
	flags.StringVar(topic, "topic", "", "The `topic` that is consumed; on RabbitMQ and SQS the queue (required)")
	flags.StringVar(group, "group", "", "Kafka: the consumer `group` (required, unless the profile has one)")
}

// subscription checks the flags and fills in the profile's group.
func (a *app) subscription(cmd *cobra.Command, s *subscriptionFlags) (to setup, kind brokerurl.Broker, err error) {
	if to.policy, err = s.policy.policy(cmd.Flags()); err != nil {
		return to, "", err
	}
	if kind, to.group, err = a.whose(s.topic, s.group); err == nil {
		err = supported(kind, cmd.Name())
	}
	return to, kind, err
}

// whose checks --topic and --group, and fills in the profile's group.
func (a *app) whose(topic, group string) (kind brokerurl.Broker, filled string, err error) {
	if topic == "" {
		return "", "", missing("--topic", "the topic or queue")
	}
	u, err := a.conn.url(a.Env) // reads the profile
	if err != nil {
		return "", "", err
	}
	if !u.Broker.HasGroups() {
		return u.Broker, "", noGroup(u.Broker, group)
	}
	if group = cmp.Or(group, a.conn.read.Group); group == "" {
		return "", "", missing("--group", "the consumer group or share group")
	}
	return u.Broker, group, nil
}

// missing returns the error of a missing required flag.
func missing(flag, what string) error {
	return usagef("missing required flag %s: %s", flag, what)
}

// codeOf returns the exit code of an error from a broker's adapter. It is not codeUsage unless the error says so.
func codeOf(err error) int {
	if f, ok := asFailure(err); ok {
		return f.code
	}
	return codeFailed
}

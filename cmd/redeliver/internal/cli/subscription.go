package cli

import (
	"cmp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/internal/brokerurl"
)

// subscriptionFlags are the topic, the group and the policy of plan and doctor.
type subscriptionFlags struct {
	topic, group string
	policy       policyFlags
}

func (s *subscriptionFlags) flags(cmd *cobra.Command) {
	grouped(cmd.Flags(), groupSubscription, func(flags *pflag.FlagSet) { topicAndGroupFlags(flags, &s.topic, &s.group) })
	s.policy.flags(cmd)
}

// topicAndGroupFlags adds --topic and --group.
func topicAndGroupFlags(flags *pflag.FlagSet, topic, group *string) {
	flags.StringVar(topic, "topic", "", "The `topic` that is consumed; on RabbitMQ and SQS the queue (required)")
	flags.StringVar(group, "group", "", "Kafka: the consumer `group` (required, unless the profile has one)")
}

// subscription checks the flags and fills in the profile's group.
func (a *app) subscription(cmd *cobra.Command, s *subscriptionFlags) (to setup, kind brokerurl.Broker, err error) {
	if to.policy, err = s.policy.policy(cmd.Flags()); err != nil {
		return to, "", err
	}
	if kind, to.group, err = a.checkTopicAndGroup(s.topic, s.group); err == nil {
		err = supported(kind, cmd.Name())
	}
	return to, kind, err
}

// checkTopicAndGroup checks --topic and --group, and fills in the profile's group.
func (a *app) checkTopicAndGroup(topic, group string) (kind brokerurl.Broker, filled string, err error) {
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
	if group = cmp.Or(group, a.conn.loaded.Group); group == "" {
		return "", "", missing("--group", "the consumer group or share group")
	}
	return u.Broker, group, nil
}

// missing returns the error of a missing required flag.
func missing(flag, what string) error {
	return usagef("missing required flag %s: %s", flag, what)
}

// brokerError gives an error of a broker's adapter the exit code 1, unless it has a code already. Otherwise a
// redeliver.ErrConfig would count as wrong usage.
func brokerError(err error) error {
	if _, ok := asFailure(err); ok {
		return err
	}
	return failed(codeFailed, "%w", err)
}

package cli

import (
	"cmp"
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// subjectFlags name a DLQ by its name, as dlq list prints it, or by its topic and group. A DLQ that another framework
// fills needs all three.
type subjectFlags struct {
	topic, group     string
	replayTo, readBy string
	lease            time.Duration
}

func (s *subjectFlags) flags(flags *pflag.FlagSet) { grouped(flags, groupDLQ, s.define) }

func (s *subjectFlags) define(flags *pflag.FlagSet) {
	flags.StringVar(&s.topic, "topic", "", "The `topic` whose messages failed; on RabbitMQ and SQS the queue (default read from the DLQ's name)")
	flags.StringVar(&s.group, "group", "", "Kafka: the consumer `group` that failed the messages (default read from the DLQ's name, or the profile's)")
	flags.StringVar(&s.readBy, "read-by", "", "Kafka, for a DLQ that another framework fills: skip the messages that this consumer `group` has committed")
}

// runner adds the flags of a verb that writes.
func (s *subjectFlags) runner(flags *pflag.FlagSet) {
	flags.DurationVar(&s.lease, "lease", 0, "Kafka and SQS: how long the DLQ stays locked after the process of a task has died (default 30s)")
	flags.StringVar(&s.replayTo, "replay-to", "", "Kafka, for a DLQ that another framework fills: replay to this `topic`, for a group that does not use redeliver (default the group's retry topic)")
}

// subject returns the DLQ that the flags name. If only its own name is given, it asks the broker for the topic and
// group.
func (a *app) subject(ctx context.Context, b *broker, flags *subjectFlags, args []string) (subject, error) {
	s := subject{topic: flags.topic, group: flags.group, lease: flags.lease, replayTo: flags.replayTo, readBy: flags.readBy}
	if len(args) > 0 {
		s.dlq = args[0]
	}
	if s.topic != "" {
		s.group = cmp.Or(s.group, a.conn.loaded.Group)
		return s, nil
	}
	if s.dlq == "" {
		return s, usagef("no DLQ given: name one as \"redeliver dlq list\" prints it, or give --topic and --group")
	}
	if s.group != "" {
		return s, usagef("--group needs --topic: give both, or only the name of the DLQ")
	}
	var err error
	s.topic, s.group, err = b.ownerOf(ctx, s.dlq)
	return s, err
}

// checkSubjectFlags refuses flags that have no effect on this broker, so that nobody relies on them.
func (a *app) checkSubjectFlags(flags *subjectFlags) error {
	u, err := a.conn.url(a.Env)
	switch {
	case err != nil:
		return err
	case flags.lease != 0 && u.Broker == brokerurl.RabbitMQ:
		return usagef("--lease is %s: RabbitMQ locks a DLQ for as long as the connection of its task lasts; omit --lease", flags.lease)
	case flags.replayTo != "" && !u.Broker.HasGroups():
		return usagef("--replay-to is %q: only a replay on Kafka can go to another topic; omit --replay-to", flags.replayTo)
	case flags.readBy != "" && !u.Broker.HasGroups():
		return usagef("--read-by is %q: %s has no consumer groups; omit --read-by", flags.readBy, displayName(u.Broker))
	default:
		return noGroup(u.Broker, flags.group)
	}
}

// noGroup refuses --group if the broker has no groups.
func noGroup(kind brokerurl.Broker, group string) error {
	if group == "" || kind.HasGroups() {
		return nil
	}
	return usagef("--group is %q: %s has no consumer groups; omit --group", group, displayName(kind))
}

// onDLQ calls do with the DLQ that the flags name.
func (a *app) onDLQ(cmd *cobra.Command, flags *subjectFlags, args []string, do func(context.Context, deadletter.Queue) error) error {
	ctx := cmd.Context()
	if err := a.checkSubjectFlags(flags); err != nil {
		return err
	}
	return a.withBroker(ctx, setup{}, func(b *broker) error {
		s, err := a.subject(ctx, b, flags, args)
		if err != nil {
			return err
		}
		q, err := b.dlq(ctx, s)
		if err != nil {
			return err
		}
		err = do(ctx, q)
		if bad := q.Close(); err == nil {
			err = bad
		}
		return err
	})
}

// dlqNames returns the names of the DLQs for shell completion.
func (a *app) dlqNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), a.maxClose())
	defer cancel()
	var names []string
	if len(args) == 0 {
		quiet := *a
		quiet.Err = io.Discard // a completion cannot show a warning or an error
		_ = quiet.withBroker(ctx, setup{}, func(b *broker) error {
			if b.queues == nil {
				return errUnlisted
			}
			all, err := b.queues(ctx)
			for _, info := range all {
				names = append(names, info.DLQ)
			}
			return err
		})
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

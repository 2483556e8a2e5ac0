package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// subjectFlags say which DLQ is meant: by its name, as dlq list has it, or by the
// topic and the group whose it is; by all three where somebody else fills it.
type subjectFlags struct {
	topic, group string
	back, readBy string
	lease        time.Duration
}

func (s *subjectFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.topic, "topic", "", "the `topic` whose messages failed; on RabbitMQ and SQS the queue (default read from the DLQ's name)")
	flags.StringVar(&s.group, "group", "", "the consumer `group` that failed them; of Kafka alone (default read from the DLQ's name, or the profile's)")
	flags.StringVar(&s.readBy, "read-by", "", "a consumer `group` that reads the DLQ: what it has committed is passed over; of Kafka alone, where somebody else fills the DLQ")
}

// runner adds what a verb that writes needs.
func (s *subjectFlags) runner(flags *pflag.FlagSet) {
	flags.DurationVar(&s.lease, "lease", 0, "how long a runner that died keeps the next one out; not of RabbitMQ (default 30s)")
	flags.StringVar(&s.back, "back", "", "the `topic` to which a replay goes if the group is not redeliver's, of Kafka alone, where somebody else fills the DLQ (default the group's way back)")
}

// atMostDLQ takes the name of a DLQ, or nothing.
func atMostDLQ(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("there are %d arguments: it takes the name of one DLQ, and flags", len(args))
	}
	return nil
}

// subject reads the flags, and asks the broker where only the DLQ's name is given.
func (a *app) subject(ctx context.Context, b *broker, flags *subjectFlags, args []string) (subject, error) {
	s := subject{topic: flags.topic, group: flags.group, lease: flags.lease, back: flags.back, readBy: flags.readBy}
	if len(args) > 0 {
		s.dlq = args[0]
	}
	if s.topic != "" {
		s.group = cmp.Or(s.group, a.conn.read.Group)
		return s, nil
	}
	if s.dlq == "" {
		return s, usagef("which DLQ? give its name, as redeliver dlq list has it, or --topic and --group")
	}
	if s.group != "" {
		return s, usagef("--group without --topic: give both, or neither and the DLQ's name alone")
	}
	var err error
	s.topic, s.group, err = b.whose(ctx, s.dlq)
	return s, err
}

// fits refuses flags that mean nothing on this broker: who gives one believes that it
// does something.
func (a *app) fits(flags *subjectFlags) error {
	u, err := a.conn.url(a.Env)
	switch {
	case err != nil:
		return err
	case flags.lease != 0 && u.Broker == brokerurl.RabbitMQ:
		return usagef("--lease is %s: on RabbitMQ a runner has the DLQ for as long as its connection lasts, and no longer; leave it out", flags.lease)
	case flags.back != "" && u.Broker != brokerurl.Kafka:
		return usagef("--back is %q: only on Kafka a replay may go elsewhere than to where the group gets its messages back; leave it out", flags.back)
	case flags.readBy != "" && u.Broker != brokerurl.Kafka:
		return usagef("--read-by is %q: %s keeps no commits of groups; leave it out", flags.readBy, called(u.Broker))
	default:
		return noGroup(u.Broker, flags.group)
	}
}

// noGroup refuses --group where there are none.
func noGroup(kind brokerurl.Broker, group string) error {
	if group == "" || kind == brokerurl.Kafka {
		return nil
	}
	return usagef("--group is %q: %s has no consumer groups, its queue is the group; leave it out", group, called(kind))
}

// onDLQ runs a verb on the DLQ that is meant.
func (a *app) onDLQ(cmd *cobra.Command, flags *subjectFlags, args []string, do func(context.Context, deadletter.Queue) error) error {
	ctx := cmd.Context()
	if err := a.fits(flags); err != nil {
		return err
	}
	return a.with(ctx, setup{}, func(b *broker) error {
		if b.dlq == nil {
			return b.notThere(cmd.CommandPath())
		}
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

// dlqNames gives the shell the names of the DLQs.
func (a *app) dlqNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), patience)
	defer cancel()
	var names []string
	if len(args) == 0 {
		_ = a.with(ctx, setup{}, func(b *broker) error { // a shell has nowhere to put an error
			if b.queues == nil {
				return errors.New("not there yet")
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

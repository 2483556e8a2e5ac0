package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// waiting are the waiting messages of one topic and group.
type waiting struct {
	levels func(ctx context.Context) ([]deadletter.WaitingLevel, error)
	// commands reads the messages and commands the consumers; nil except on Kafka.
	commands *kafka.Waiting
	// notes say what the broker does not report.
	notes []string
	close func() error
}

// waitingFlags select waiting messages.
type waitingFlags struct {
	topic, group string
	levels       []string
	filterFlags  filterFlags
}

// flags adds them; messages says that single messages are selected, not only levels.
func (w *waitingFlags) flags(cmd *cobra.Command, messages bool) {
	cmd.Flags().StringVar(&w.topic, "topic", "", "The `topic` whose messages wait; on RabbitMQ and SQS the queue (required)")
	cmd.Flags().StringVar(&w.group, "group", "", "Kafka: the consumer `group` that they wait for (required, unless the profile has one)")
	w.filterFlags.flagSet = cmd.Flags()
	grouped(cmd.Flags(), groupFilter, func(flags *pflag.FlagSet) {
		flags.StringSliceVar(&w.levels, "level", nil, "Select messages that wait on this `level`, as \"waiting list\" prints it: 1h. Repeatable")
		if messages {
			w.filterFlags.common(flags)
		}
	})
}

// filter reads the flags.
func (w *waitingFlags) filter() (f deadletter.WaitingFilter, err error) {
	f.Levels = w.levels
	if f.Filter, err = w.filterFlags.filter(time.Now()); err != nil {
		return f, err
	}
	if err := f.Check(); err != nil {
		return f, usagef("%w", err)
	}
	return f, nil
}

func waitingCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "waiting",
		Short: "Inspect, release and cancel messages that wait for a retry",
		Long: `Inspect, release and cancel messages that have failed and wait for a retry, or that were
published with a delay.

list counts the messages on each level. On Kafka, release makes whole levels due now, and
cancel sends messages to the DLQ when they are due. The consumers of the group carry out
these commands.`,
	}
	cmd.AddCommand(waitingListCommand(a), controlCommand(a, deadletter.ReleaseWaiting), controlCommand(a, deadletter.CancelWaiting), withdrawCommand(a))
	verbs(cmd)
	return cmd
}

// onWaiting runs a verb on the waiting messages of the topic and group that the flags name.
func (a *app) onWaiting(cmd *cobra.Command, flags *waitingFlags, s setup, do func(context.Context, *broker, *waiting, subject) error) error {
	ctx := cmd.Context()
	_, group, err := a.whose(flags.topic, flags.group)
	if err != nil {
		return err
	}
	of := subject{topic: flags.topic, group: group}
	return a.with(ctx, s, func(b *broker) error { return b.onWaiting(ctx, of, do) })
}

func (b *broker) onWaiting(ctx context.Context, of subject, do func(context.Context, *broker, *waiting, subject) error) error {
	w, err := b.waiting(ctx, of)
	if err != nil {
		return err
	}
	err = do(ctx, b, w, of)
	if w.close != nil {
		err = errors.Join(err, w.close())
	}
	return err
}

// onCommands is onWaiting for what only Kafka can do. It refuses other brokers before it
// connects to one.
func (a *app) onCommands(cmd *cobra.Command, flags *waitingFlags, do func(context.Context, *kafka.Waiting, subject) error) error {
	u, err := a.conn.url(a.Env)
	if err != nil {
		return err
	}
	if u.Broker != brokerurl.Kafka {
		return instead(u.Broker, cmd.CommandPath())
	}
	return a.onWaiting(cmd, flags, setup{}, func(ctx context.Context, _ *broker, w *waiting, of subject) error { return do(ctx, w.commands, of) })
}

// instead is the error on other brokers, with what to do instead.
func instead(kind brokerurl.Broker, verb string) error {
	why := "RabbitMQ reads a delay queue only from its head, so a search would take messages out of their wait"
	if kind == brokerurl.SQS {
		why = "SQS shows a delayed message to nobody before it is due"
	}
	return failed(codeFailed, "%s is supported only on Kafka: %s. To stop messages, set Policy.Invalid in the consumers, which ask it before each attempt; see docs/reference/waiting.md", verb, why)
}

// waitsAt names a level in a table.
func waitsAt(level time.Duration) string {
	if level == 0 {
		return "-"
	}
	return delayqueue.LevelName(level)
}

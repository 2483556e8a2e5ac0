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
)

// waiting are the waiting messages of one topic and group.
type waiting struct {
	levels func(ctx context.Context) ([]deadletter.WaitingLevel, error)
	// commands reads the messages and commands the consumers; nil except on Kafka.
	commands *kafka.Waiting
	// release moves what waits on levels, of all where none are named, to the way back; nil where the consumers do that
	// by command, or nobody can.
	release func(ctx context.Context, levels []time.Duration) (int64, error)
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

list counts the messages on each level. release makes whole levels due now, on Kafka and
RabbitMQ. cancel sends messages to the DLQ when they are due, on Kafka. On Kafka, the
consumers of the group carry out these commands.`,
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

// onCommands does something with the commands to the consumers, or with the messages that wait, on a broker that has such.
func (a *app) onCommands(cmd *cobra.Command, verb string, flags *waitingFlags, do func(context.Context, *kafka.Waiting, subject) error) error {
	if err := a.supported(verb); err != nil {
		return err
	}
	return a.onWaiting(cmd, flags, setup{}, func(ctx context.Context, _ *broker, w *waiting, of subject) error { return do(ctx, w.commands, of) })
}

// waitsAt names a level in a table.
func waitsAt(level time.Duration) string {
	if level == 0 {
		return "-"
	}
	return delayqueue.LevelName(level)
}

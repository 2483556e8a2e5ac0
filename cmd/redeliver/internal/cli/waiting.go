package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/console"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/mq"
)

// waiting accesses the waiting messages of one topic and group.
type waiting struct {
	levels func(ctx context.Context) ([]deadletter.WaitingLevel, error)
	// commands reads the messages and sends commands to the consumers. It is nil except on Kafka.
	commands mq.Waiting
	// release moves the waiting messages of the given levels, or of all levels if none are given, to the retry queue.
	// It is nil except on RabbitMQ: on Kafka, consumers do it by command.
	release func(ctx context.Context, levels []time.Duration) (int64, error)
	// pauser pauses the group.
	pauser console.Pauser
	// notes describe what the broker does not report.
	notes []string
	close func() error // nil for nothing to close; see end
}

// waitingFlags select waiting messages.
type waitingFlags struct {
	topic, group string
	levels       []string
	filterFlags  filterFlags
}

// flags adds the flags. messages is false if only levels can be selected.
func (w *waitingFlags) flags(cmd *cobra.Command, messages bool) {
	grouped(cmd.Flags(), groupSubscription, func(flags *pflag.FlagSet) { topicAndGroupFlags(flags, &w.topic, &w.group) })
	w.filterFlags.flagSet = cmd.Flags()
	grouped(cmd.Flags(), groupFilter, func(flags *pflag.FlagSet) {
		flags.StringSliceVar(&w.levels, "level", nil, "Select messages that wait on this `level`, as \"waiting list\" prints it: 1h. Repeatable")
		if messages {
			w.filterFlags.common(flags)
		}
	})
}

// filter returns the filter of the flags.
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
	cmd.AddCommand(waitingListCommand(a), controlCommand(a, deadletter.CommandRelease), controlCommand(a, deadletter.CommandCancel))
	refuseUnknownVerbs(cmd)
	return cmd
}

// onWaiting calls do with the waiting messages of the topic and group that the flags name.
func (a *app) onWaiting(cmd *cobra.Command, flags *waitingFlags, s setup, do func(context.Context, *broker, *waiting, subject) error) error {
	ctx := cmd.Context()
	_, group, err := a.checkTopicAndGroup(flags.topic, flags.group)
	if err != nil {
		return err
	}
	of := subject{topic: flags.topic, group: group}
	return a.withBroker(ctx, s, func(b *broker) error {
		w, err := b.waiting(ctx, of)
		if err != nil {
			return err
		}
		return errors.Join(do(ctx, b, w, of), w.end())
	})
}

// end closes the connections of w.
func (w *waiting) end() error {
	if w.close == nil {
		return nil
	}
	return w.close()
}

// levelCell formats a level for a table.
func levelCell(level time.Duration) string {
	if level == 0 {
		return "-"
	}
	return delayqueue.LevelName(level)
}

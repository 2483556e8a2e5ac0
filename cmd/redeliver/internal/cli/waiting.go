package cli

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// waiting is what waits for one topic and group, as a broker shows it.
type waiting struct {
	levels func(ctx context.Context) ([]deadletter.WaitingLevel, error)
	// commands are those of Kafka, where the messages can be seen, and their consumers
	// be told something. Nil elsewhere.
	commands *kafka.Waiting
	// notes are what the levels do not say.
	notes []string
	close func() error
}

// waitingFlags say what waiting messages are meant.
type waitingFlags struct {
	topic, group string
	levels       []string
	filterFlags  filterFlags
}

func (w *waitingFlags) whose(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&w.topic, "topic", "", "the `topic` whose messages wait; on RabbitMQ and SQS the queue")
	flags.StringVar(&w.group, "group", "", "the consumer `group` that they wait for; of Kafka alone (default the profile's)")
}

func (w *waitingFlags) onLevels(cmd *cobra.Command) {
	w.filterFlags.flagSet = cmd.Flags()
	cmd.Flags().StringSliceVar(&w.levels, "level", nil, "messages that wait on this level, as waiting list has it: 1h; may be repeated")
}

func (w *waitingFlags) filters(cmd *cobra.Command) {
	w.onLevels(cmd)
	flags, f := cmd.Flags(), &w.filterFlags
	flags.StringSliceVar(&f.fingerprints, "fingerprint", nil, "messages that failed of this cause, as waiting list --messages has it; may be repeated")
	flags.StringArrayVar(&f.ids, "id", nil, "the message with this `id`; may be repeated")
	flags.StringVar(&f.key, "key", "", "messages with exactly this key; an empty one means an empty key")
	flags.StringArrayVar(&f.headers, "header", nil, "messages with this header, `name=value`; of several, all")
	flags.StringVar(&f.errorText, "error-text", "", "messages whose latest error has this text, in upper or lower case")
	flags.StringVar(&f.errorType, "error-type", "", "messages with exactly this type of error")
}

// filter reads them.
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

func (a *app) waiting() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "waiting",
		Short: "See what waits for its next attempt, and act on it",
		Long: `waiting is about messages that have failed and wait for their next attempt, or were
published with a delay. list says how many wait on each level. On Kafka, release makes
whole levels due now, and cancel sends messages to the DLQ when they are due: the group's
consumers read the command and obey it.`,
	}
	cmd.AddCommand(a.waitingList(), a.waitingCommand(deadletter.ReleaseWaiting), a.waitingCommand(deadletter.CancelWaiting), a.withdraw())
	verbs(cmd)
	return cmd
}

// onWaiting runs a verb on what waits for the topic and group that are meant.
func (a *app) onWaiting(cmd *cobra.Command, flags *waitingFlags, s setup, do func(context.Context, *broker, *waiting, subject) error) error {
	ctx := cmd.Context()
	u, err := a.conn.url(a.Env)
	if err != nil {
		return err
	}
	if err := noGroup(u.Broker, flags.group); err != nil {
		return err
	}
	of := subject{topic: flags.topic, group: flags.group}
	if u.Broker == brokerurl.Kafka {
		of.group = cmp.Or(of.group, a.conn.read.Group)
	}
	switch {
	case of.topic == "":
		return usagef("which topic, or queue? give --topic")
	case of.group == "" && u.Broker == brokerurl.Kafka:
		return usagef("which group do they wait for? give --group")
	}
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

// onCommands is onWaiting for what is there on Kafka alone. Elsewhere nothing is asked
// of the broker.
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

// instead is what to do where consumers cannot be told.
func instead(kind brokerurl.Broker, verb string) error {
	why := "RabbitMQ hands out a delay queue from its head alone: to find one message, all before it would be taken out of their wait"
	if kind == brokerurl.SQS {
		why = "SQS lets nobody see or receive a delayed message before it is due"
	}
	return failed(codeFailed, "%s is there on Kafka alone: %s. What must not run any more is kept from it by Policy.Invalid of the consumers, which is asked before each attempt: see docs/reference/waiting.md", verb, why)
}

// waitsAt names a level for people.
func waitsAt(level time.Duration) string {
	if level == 0 {
		return "-"
	}
	return delayqueue.LevelName(level)
}

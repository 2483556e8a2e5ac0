package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/actor"
	"github.com/redeliver/redeliver/mq"
)

// pauser pauses the subscriptions of a client's group.
type pauser interface {
	Pause(ctx context.Context, topic, reason string) error
	PauseNew(ctx context.Context, topic, reason string) error
	Resume(ctx context.Context, topic string) error
	Paused(ctx context.Context, topic string) (*redeliver.PauseMark, error)
}

// queuePauser pauses the readers of a queue. It implements console.Pauser.
type queuePauser struct {
	pauser
	queue string
}

func (p queuePauser) Pause(ctx context.Context, reason string) error {
	return p.pauser.Pause(ctx, p.queue, reason)
}
func (p queuePauser) Resume(ctx context.Context) error { return p.pauser.Resume(ctx, p.queue) }
func (p queuePauser) Paused(ctx context.Context) (*redeliver.PauseMark, error) {
	return p.pauser.Paused(ctx, p.queue)
}

// pauseRow is a subscription that was paused or resumed.
type pauseRow struct {
	Broker  string    `json:"broker"`
	Origin  string    `json:"origin"`          // the topic or queue
	Group   string    `json:"group,omitempty"` // Kafka only
	Paused  bool      `json:"paused"`
	NewOnly bool      `json:"new_only,omitempty"`
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Reason  string    `json:"reason,omitempty"`
}

func pauseGroupCommand(a *app) *cobra.Command {
	var topic, group string
	var sign signature
	var newOnly bool
	cmd := &cobra.Command{
		Use: "pause --topic TOPIC [--group GROUP] --note TEXT", Short: "Let a group begin no messages, until resume", Args: exactly(),
		Long: `Pause a subscription in all processes of its group, also in those that start later. Within
10 s nothing new begins, neither first attempts nor retries that fall due. Running attempts
go on, and no attempt is counted. The pause lasts until "redeliver resume". doctor, events
and metrics show it.`,
		Example: `  redeliver pause --broker kafka://localhost:9092 --topic orders --group billing --note 'the bank is closed'
  redeliver pause --broker amqp://localhost --topic orders --note 'migration of the database'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sign.note == "" {
				return missing("--note", "why you do this, which others see")
			}
			if err := a.sign(&sign, false); err != nil {
				return err
			}
			return a.onSubscription(cmd, topic, group, func(ctx context.Context, p pauser) error {
				ctx = actor.With(ctx, sign.who)
				if !newOnly {
					return p.Pause(ctx, topic, sign.note)
				}
				err := p.PauseNew(ctx, topic, sign.note)
				if errors.Is(err, mq.ErrUnsupported) {
					return usagef("SQS cannot pause new messages only, because retries wait in the same queue: omit --new-only")
				}
				return err
			})
		},
	}
	grouped(cmd.Flags(), groupSubscription, func(flags *pflag.FlagSet) { topicAndGroupFlags(flags, &topic, &group) })
	sign.define(cmd.Flags(), "Show this `text` to others: why you do this (required)", "Show this `name` to others")
	cmd.Flags().StringVar(&sign.note, "reason", "", "The `text` of --note, as it was called before")
	_ = cmd.Flags().MarkHidden("reason") // fails only for unknown flags
	cmd.Flags().BoolVar(&newOnly, "new-only", false, "Pause new messages only: retries that fall due continue (Kafka and RabbitMQ)")
	return cmd
}

func resumeGroupCommand(a *app) *cobra.Command {
	var topic, group string
	cmd := &cobra.Command{
		Use: "resume --topic TOPIC [--group GROUP]", Short: "End a pause", Args: exactly(),
		Long: `End a pause that "redeliver pause" began. The processes of the group go on within 10 s.
Without a pause it does nothing.`,
		Example: "  redeliver resume --broker kafka://localhost:9092 --topic orders --group billing",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.onSubscription(cmd, topic, group, func(ctx context.Context, p pauser) error { return p.Resume(ctx, topic) })
		},
	}
	grouped(cmd.Flags(), groupSubscription, func(flags *pflag.FlagSet) { topicAndGroupFlags(flags, &topic, &group) })
	return cmd
}

// onSubscription calls do, and prints whether the subscription is then paused.
func (a *app) onSubscription(cmd *cobra.Command, topic, group string, do func(context.Context, pauser) error) error {
	_, group, err := a.checkTopicAndGroup(topic, group)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	return a.withBroker(ctx, setup{group: group}, func(b *broker) error {
		if err := do(ctx, b.pauser); err != nil {
			return brokerError(err)
		}
		mark, err := b.pauser.Paused(ctx, topic)
		if err != nil {
			return brokerError(err)
		}
		row := pauseRow{Broker: string(b.kind), Origin: topic, Group: group, Paused: mark != nil}
		if mark != nil {
			row.By, row.At, row.Reason, row.NewOnly = mark.By, mark.At, mark.Reason, mark.NewOnly
		}
		return a.printOne(row, row.draw)
	})
}

func (r *pauseRow) draw(c *details) {
	c.line("origin", r.Origin)
	c.line("group", r.Group)
	if !r.Paused {
		c.line("paused", "no")
		return
	}
	c.line("paused by", r.By)
	if r.NewOnly {
		c.line("retries", "continue")
	}
	c.line("at", r.At)
	c.line("reason", r.Reason)
}

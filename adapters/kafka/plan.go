package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/mq"
)

// Plan compares the broker with the policy and returns what Subscribe would use and create, without
// creating anything. It returns the same error as Subscribe: a policy that cannot be met is
// refused, not clamped. ctx is checked before the request. Then only the timeouts of Config.Sarama
// end the request.
func (c *client) Plan(ctx context.Context, topic string) (*mq.Plan, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("kafka: planning %s: %w", topic, context.Cause(ctx))
	}
	l, err := c.layout(topic, c.cfg.Group)
	if err != nil {
		return nil, err
	}
	if err := c.topics.VerifyFresh(l); err != nil {
		return nil, err
	}
	p := planOf(l)
	problems, wishes, err := c.topics.CheckCompanions(l)
	if err != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("the settings of %s and %s were not checked: %v", l.State.Name, l.Control.Name, err))
	}
	for _, w := range problems {
		p.Notes = append(p.Notes, w.String()+" (this refuses no start)")
	}
	p.Notes = append(p.Notes, wishes...)
	return p, nil
}

func planOf(l *topology.Layout) *mq.Plan {
	p := &mq.Plan{
		Server: "Kafka", Origin: l.Origin, Group: l.Group, OperatorPlaces: companions(l), Rights: rights(l), OperatorRights: operatorRights(l), LongestWait: l.MaxWait,
	}
	for _, t := range l.Topics {
		p.Places = append(p.Places, planned(t))
		if t.Old {
			p.Notes = append(p.Notes, fmt.Sprintf("%s is a level of an older policy; it is read until it is deleted", t.Name))
		}
	}
	if l.Discards {
		p.Notes = append(p.Notes, "there is no DLQ: a message that is not retried is reported, and lost (DLQ.Discard)")
	}
	for _, w := range l.Unfit {
		p.Notes = append(p.Notes, w.String()+" (this refuses nothing: messages that wait there are read, and longer waits hop over the other levels)")
	}
	for _, w := range l.Warnings {
		p.Notes = append(p.Notes, w.String()+" (this refuses nothing: it is a level of an older policy)")
	}
	p.Notes = append(p.Notes, l.Wishes...)
	if l.Policy.Order == redeliver.OrderThroughRetries {
		p.Notes = append(p.Notes, "the Order is OrderThroughRetries: messages behind a failed message of their key wait on the levels, too; the other members of the group need such a policy as well")
	}
	if l.MaxWait < redeliver.MaxWait {
		p.Notes = append(p.Notes, fmt.Sprintf("the retention of the delay topics is limited: a handler may ask for %s at most, more is dead-lettered as unschedulable", l.MaxWait))
	}
	var listed bool
	p.Delays, listed = delayqueue.PlanDelays(l.Policy, func(d time.Duration) ([]time.Duration, string) {
		return l.Ladder.Describe(d, "delay topic", "the retry topic")
	})
	if !listed {
		p.Notes = append(p.Notes, "the backoff cannot list its delays; the levels are the default ones")
	}
	p.Notes = append(p.Notes, engine.Notes(l.Policy)...)
	return p
}

// companions returns the topics for work on the DLQ and for commands.
func companions(l *topology.Layout) []mq.Place {
	if l.Discards {
		return []mq.Place{planned(l.Control)}
	}
	return []mq.Place{planned(l.State), planned(l.Control)}
}

func planned(t topology.Topic) mq.Place {
	return mq.Place{
		Name: t.Name, Kind: string(t.Kind), Level: t.Level, Partitions: t.Partitions, Replicas: t.Replicas,
		Settings: mq.SettingsOf(t.Settings), Exists: t.Exists, Old: t.Old, OnDemand: t.Rung, Messages: -1,
	}
}

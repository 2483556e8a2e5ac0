package kafka

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// Plan describes how the subscription of a topic waits: the topics that it uses, including those
// that are created later, and how each delay of its policy is spent.
type Plan struct {
	Origin, Group string
	Topics        []PlannedTopic
	// OperatorTopics are topics that messages do not need for waiting and coming back. The DLQ's state
	// is created when somebody first works on the DLQ. The control topic has the commands about
	// waiting messages, and is created with the first command.
	OperatorTopics []PlannedTopic
	Delays         []delayqueue.PlannedDelay
	// Rights are those that the group's members need if all topics exist (Config.NoProvisioning).
	// OperatorRights are those that a person needs to look into the DLQ, to replay its messages and
	// to call Doctor, if OperatorTopics exist, too.
	Rights, OperatorRights []Right
	// LongestWait is the longest wait that a handler may ask for.
	LongestWait time.Duration
	// Notes are further findings, such as old levels or short retention.
	Notes []string
}

// PlannedTopic is one of redeliver's topics.
type PlannedTopic struct {
	Name       string
	Kind       string        // "delay", "retry", "dlq"; in OperatorTopics "state", "control"
	Level      time.Duration // of a delay topic
	Partitions int32
	Replicas   int16
	Settings   map[string]string
	Exists     bool // if false, it is created at start or, if OnDemand is set, when a message needs it
	OnDemand   bool // a level for waits that only a handler or a publisher asks for
	Old        bool // a level of an older policy, read until it is empty
}

// Plan compares the broker with the policy and returns what Subscribe would use and create, without
// creating anything. It returns the same error as Subscribe: a policy that cannot be met is
// refused, not clamped. ctx is checked before the request. Then only the timeouts of Config.Sarama
// end the request.
func (c *Client) Plan(ctx context.Context, topic string) (*Plan, error) {
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

func planOf(l *topology.Layout) *Plan {
	p := &Plan{
		Origin: l.Origin, Group: l.Group, OperatorTopics: companions(l), Rights: rights(l), OperatorRights: operatorRights(l), LongestWait: l.MaxWait,
	}
	for _, t := range l.Topics {
		p.Topics = append(p.Topics, planned(t))
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
func companions(l *topology.Layout) []PlannedTopic {
	if l.Discards {
		return []PlannedTopic{planned(l.Control)}
	}
	return []PlannedTopic{planned(l.State), planned(l.Control)}
}

func planned(t topology.Topic) PlannedTopic {
	return PlannedTopic{
		Name: t.Name, Kind: string(t.Kind), Level: t.Level, Partitions: t.Partitions, Replicas: t.Replicas,
		Settings: t.Settings, Exists: t.Exists, Old: t.Old, OnDemand: t.Rung,
	}
}

// String returns the plan as a text for people.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, group %s\n\n", p.Origin, p.Group)
	delayqueue.WriteTable(&b, "topic\tkind\tpartitions\treplicas\t", func(w io.Writer) {
		for _, t := range p.Topics {
			state := "is created"
			switch {
			case t.Exists:
				state = "exists"
			case t.OnDemand:
				state = "is created when a wait needs it"
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", t.Name, t.Kind, t.Partitions, t.Replicas, state)
		}
	})
	delayqueue.WriteDelays(&b, "waits on", p.Delays)
	fmt.Fprintf(&b, "longest wait that a handler may ask for: %s; never early, a few milliseconds late\n", limits.DurationText(p.LongestWait))
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

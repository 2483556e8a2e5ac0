package amqp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/dlq"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/topology"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wirename"
)

// queueRate is the approximate number of messages that one delay queue dead-letters in a second.
const queueRate = 2500

// Plan describes how the subscription of a topic waits: the queues that it uses, those that are
// created at start, how each delay of its policy is spent, and what the broker itself does to the
// messages.
type Plan struct {
	Topic, Queue string
	Server       string // the broker's own name, such as "RabbitMQ 3.10.8"
	Queues       []PlannedQueue
	// State is the DLQ's companion, which is created when somebody first works on the DLQ.
	// Subscribers do not need it.
	State  PlannedQueue
	Delays []delayqueue.PlannedDelay
	// Rights are those that a subscriber's user needs if all queues exist (Config.NoProvisioning). They include the right to
	// write to the topology's exchange, for messages that were published with a delay.
	// From RabbitMQ 4.3 on they include the right to configure the queues that are not read: without
	// any right, a user cannot see that a queue exists.
	// CreationRights are those that it needs in addition to create what is missing, at the start or after a deletion.
	// OperatorRights are those that a person needs to look into the DLQ and to replay its messages,
	// if State exists, too.
	Rights, CreationRights, OperatorRights Rights
	// LongestWait is the longest wait that a handler may ask for. If the Order of the policy is
	// OrderBlocking, longer ones are cut to it.
	LongestWait time.Duration
	// Rate is about how many messages in a second may fall due on a level longer than a minute
	// without being late.
	Rate int
	// Notes are further findings, such as limits, old levels or stuck messages.
	Notes []string
	// NotChecked lists what was not checked, and why.
	NotChecked []string
	// Problems are those of the error that is returned with the plan: queues to create if
	// Config.NoProvisioning is set.
	Problems []redeliver.Problem
}

// PlannedQueue is the subscription's queue, or one of redeliver's.
type PlannedQueue struct {
	Name      string
	Kind      string         // "queue", "delay", "retry", "suspects", "paused", "place" or "dlq"; "state" of Plan.State
	Level     time.Duration  // of a delay queue
	Arguments map[string]any // those that it has or, if unknown, is declared with
	Exists    bool           // false: it is created at start
	Old       bool           // left by an older policy; its messages leave it when they are due
	// Messages is the number of messages in the queue, stuck ones included; -1 means not checked.
	Messages int64
}

// Plan compares the broker with the policy and returns what Subscribe would use and create, without
// creating anything. It returns the same error as Subscribe: a policy that cannot be met is
// refused, not clamped, with all problems in one redeliver.ConfigError. With Config.NoProvisioning
// it returns the plan together with that error, because the plan lists the queues to create.
//
// Plan determines the user's rights with requests that RabbitMQ refuses in any case after it has
// checked the rights: it declares a queue with a lifetime of "never", reads one with an invalid
// argument, and publishes a message that lives for "never" milliseconds. No queue is created or
// read, and no exchange gets a message. Each request is an error in the broker's log.
//
// With Config.ManagementURL, Plan and Subscribe check policies, limits and feature flags, too. If
// the management API does not answer, Plan fails, and Subscribe reports it to the sink ("not
// checked") and continues. Without it Plan.NotChecked lists what is unknown.
func (c *Client) Plan(ctx context.Context, topic string) (*Plan, error) {
	if c.isClosed() {
		return nil, link.ErrClosed
	}
	l, s, err := c.survey(ctx, topic)
	if err != nil {
		return nil, err
	}
	there, err := c.broker().Verify(ctx, s, true)
	if err != nil && (there == nil || !c.cfg.NoProvisioning) {
		return nil, err
	}
	p := newPlan(&c.cfg, l, s, there)
	if refused, ok := errors.AsType[*redeliver.ConfigError](err); ok {
		p.Problems = refused.Problems
	}
	return p, err
}

// newPlan makes the plan of a survey. there says which queues exist.
func newPlan(cfg *Config, l *layout.Layout, s *topology.Survey, there map[string]bool) *Plan {
	p := &Plan{
		Topic: l.Topic, Queue: l.Queue, Server: s.Server, LongestWait: redeliver.MaxWait, Rate: queueRate,
		Notes: s.Notes, NotChecked: append(s.Unchecked, "the broker's own consumer_timeout (no API reports it; ConsumerTimeout must not be longer)"),
	}
	add := func(q layout.Queue, old bool) {
		planned := PlannedQueue{
			Name: q.Name, Kind: string(q.Kind), Level: q.Level, Exists: old || there[q.Name], Old: old, Arguments: maps.Clone(q.Args), Messages: -1,
		}
		switch info, ok := s.Queues[q.Name]; {
		case ok:
			planned.Arguments = maps.Clone(info.Arguments)
			if info.Messages != nil {
				planned.Messages = *info.Messages
			}
		case planned.Exists && q.Kind == layout.MainQueue:
			planned.Arguments = nil // the user's own, unknown
		case !planned.Exists && s.Asked:
			planned.Messages = 0
		}
		p.Queues = append(p.Queues, planned)
	}
	add(l.OriginQueue(), false)
	for _, k := range []layout.Kind{layout.DelayQueue, layout.RetryQueue, layout.SuspectQueue, layout.PauseQueue, layout.PlaceQueue, layout.DeadQueue} {
		for _, q := range l.Queues {
			if q.Kind == k {
				add(q, false)
			}
		}
	}
	for _, q := range s.OldLevels() {
		add(q, true)
	}
	p.Rights, p.CreationRights = subscriberRights(l, s), creationRights(cfg, l)
	if l.DeadLetters.Discard {
		p.Notes = append(p.Notes, "there is no DLQ: a message that is not retried is reported, and lost (DLQ.Discard)")
	} else {
		p.State = PlannedQueue{Name: l.DLQ() + wirename.StateSuffix, Kind: "state", Arguments: layout.UnlimitedArgs(), Messages: -1}
		p.OperatorRights = operatorRights(l, s)
	}
	p.planDelays(l, cfg)
	p.noteTimeout(l.Policy, cfg.ConsumerTimeout)
	return p
}

// planDelays adds how each wait of the policy is spent.
func (p *Plan) planDelays(l *layout.Layout, cfg *Config) {
	var listed bool
	p.Delays, listed = delayqueue.PlanDelays(l.Policy, func(d time.Duration) ([]time.Duration, string) {
		if l.Ordered() {
			return nil, "in its place, unacked"
		}
		return l.Ladder.Describe(d, "delay queue", l.Retry())
	})
	if !listed {
		p.Notes = append(p.Notes, "the backoff cannot list its delays; the levels are the default ones")
	}
	p.Notes = append(p.Notes, engine.Notes(l.Policy)...)
	if l.Ordered() {
		p.noteOrdered(l, cfg)
		return
	}
	_, jitter, _ := l.Policy.Delays()
	if jitter <= 0 {
		return
	}
	if maxHeld := cfg.ConsumerTimeout / 4; jitter >= maxHeld {
		p.Notes = append(p.Notes, fmt.Sprintf("jitter of %s and more is not held but hops: a quarter of ConsumerTimeout is the longest time that a message is held", maxHeld))
	}
	p.Notes = append(p.Notes, fmt.Sprintf("jitter is held unacked by the reader of %s, for up to %d messages at once; more of them hop", l.Retry(), cfg.retryPrefetch(l.Policy)/2))
}

// noteOrdered adds notes about ordered queues.
func (p *Plan) noteOrdered(l *layout.Layout, cfg *Config) {
	who := "a message"
	p.LongestWait = limits.MaxBlock
	if l.Policy.Order == redeliver.OrderThroughRetries {
		who, p.LongestWait = "a key", cfg.ConsumerTimeout/2
	}
	p.Notes = append(p.Notes, fmt.Sprintf(
		"%s that fails waits in its place, and what is behind it too, of %d messages that one process at a time has unacked: its attempts are in a note in %s. "+
			"Every process needs the same Prefetch: if a smaller one takes over from a larger one and ends too, a quorum queue puts its messages behind the others that came back",
		who, cfg.prefetch(l.Policy), l.Place()))
}

// noteTimeout notes handlers that may exceed the broker's timeout.
func (p *Plan) noteTimeout(policy redeliver.Policy, limit time.Duration) {
	busy := policy.Timeout * time.Duration(1+policy.Immediate)
	switch {
	case policy.Timeout == redeliver.NoTimeout:
		p.Notes = append(p.Notes, fmt.Sprintf("a handler may run forever: after ConsumerTimeout (%s) the broker takes its message back and delivers it again, uncounted", limit))
	case busy > limit/2:
		p.Notes = append(p.Notes, fmt.Sprintf("a handler may run for %s, immediate retries included, after its message has waited in the process for up to %s: that is longer than ConsumerTimeout (%s), and the broker may take the message back", busy, limit/2, limit))
	}
}

// String formats the plan for people.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "queue %s, %s\n\n", p.Queue, p.Server)
	delayqueue.WriteTable(&b, "queue\tkind\tmessages\t", func(w io.Writer) {
		for _, q := range p.Queues {
			state, messages := "exists", "not checked"
			if !q.Exists {
				state = "is created"
			} else if q.Old {
				state = "is left over"
			}
			if q.Messages >= 0 {
				messages = strconv.FormatInt(q.Messages, 10)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", q.Name, q.Kind, messages, state)
		}
	})
	delayqueue.WriteDelays(&b, "waits on", p.Delays)
	fmt.Fprintf(&b, "longest wait that a handler may ask for: %s; never early, a few milliseconds late\n", limits.DurationText(p.LongestWait))
	fmt.Fprintf(&b, "up to about %d messages/s may fall due on one level that is longer than %s; above that they come late\n",
		p.Rate, delayqueue.LevelName(layout.MaxReadLevel))
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for _, r := range p.Problems {
		fmt.Fprintf(&b, "refused: %s\n", r)
	}
	for _, n := range p.NotChecked {
		fmt.Fprintf(&b, "not checked: %s\n", n)
	}
	return b.String()
}

// Rights are what RabbitMQ must allow a user: names of queues and exchanges, for the
// three patterns of rabbitmqctl set_permissions.
type Rights struct{ Configure, Write, Read []string }

// defaultExchange is the name of the default exchange in permissions.
const defaultExchange = "amq.default"

// passiveRights returns the queues that a user must be able to configure in order to see that they exist. The right to read
// a queue is enough, too.
func passiveRights(l *layout.Layout, s *topology.Survey, read []string) []string {
	if !s.PassiveNeedsConfigure() {
		return nil
	}
	names := []string{l.Queue}
	for _, q := range l.Queues {
		names = append(names, q.Name)
	}
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(read, name) })
}

// subscriberRights returns the rights of a subscriber. It checks that all queues exist, reads the queue, the retry queue, the
// suspects and the short levels, and writes through the default exchange.
func subscriberRights(l *layout.Layout, s *topology.Survey) Rights {
	r := Rights{Write: []string{defaultExchange}, Read: []string{l.Queue}}
	for _, q := range l.Queues {
		if q.IsRead() {
			r.Read = append(r.Read, q.Name)
		}
	}
	r.Configure = passiveRights(l, s, r.Read)
	if l.Binding.Exchange != "" {
		r.Write = append(r.Write, l.Binding.Exchange)
	}
	return r
}

// creationRights returns the rights to declare what a subscription needs. A queue that dead-letters can only be declared by
// a user who may read it and write to where its dead letters go, which is the default exchange.
func creationRights(cfg *Config, l *layout.Layout) (r Rights) {
	if !cfg.NoProvisioning {
		for _, q := range l.Queues {
			r.Configure = append(r.Configure, q.Name)
			if _, dead := q.Args[layout.DeadLetterTo]; dead && !q.IsRead() {
				r.Read = append(r.Read, q.Name)
			}
		}
	}
	if l.Existing {
		return r
	}
	r.Configure = append(r.Configure, l.Queue)
	if exchange := l.Binding.Exchange; exchange != "" {
		r.Configure, r.Write, r.Read = append(r.Configure, exchange), append(r.Write, l.Queue), append(r.Read, exchange)
	}
	return r
}

// operatorRights returns the rights of a person who works on the DLQ and pauses the subscription. Apart from the DLQ
// and its state, these include the locks, which are declared for each session.
func operatorRights(l *layout.Layout, s *topology.Survey) Rights {
	read := []string{l.DLQ(), l.DLQ() + wirename.StateSuffix, l.Paused()}
	return Rights{Configure: append(dlq.LockQueues(l.DLQ()), passiveRights(l, s, read)...), Write: []string{defaultExchange}, Read: read}
}

package amqp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	"github.com/redeliver/redeliver/mq"
)

// queueRate is the approximate number of messages that one delay queue dead-letters in a second.
const queueRate = 2500

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
func (c *client) Plan(ctx context.Context, topic string) (*mq.Plan, error) {
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
func newPlan(cfg *Config, l *layout.Layout, s *topology.Survey, there map[string]bool) *mq.Plan {
	p := &mq.Plan{
		Origin: l.Queue, Server: s.Server, LongestWait: redeliver.MaxWait,
		Notes:      append(s.Notes, fmt.Sprintf("up to about %d messages/s may fall due on one level that is longer than %s; above that they come late", queueRate, delayqueue.LevelName(layout.MaxReadLevel))),
		NotChecked: append(s.Unchecked, "the broker's own consumer_timeout (no API reports it; ConsumerTimeout must not be longer)"),
	}
	add := func(q layout.Queue, old bool) {
		planned := mq.Place{
			Name: q.Name, Kind: string(q.Kind), Level: q.Level, Exists: old || there[q.Name], Old: old, Settings: maps.Clone(q.Args), Messages: -1,
		}
		switch info, ok := s.Queues[q.Name]; {
		case ok:
			planned.Settings = maps.Clone(info.Arguments)
			if info.Messages != nil {
				planned.Messages = *info.Messages
			}
		case planned.Exists && q.Kind == layout.MainQueue:
			planned.Settings = nil // the user's own, unknown
		case !planned.Exists && s.Asked:
			planned.Messages = 0
		}
		p.Places = append(p.Places, planned)
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
	p.Rights, p.CreationRights = subscriberRights(l, s).planned(), creationRights(cfg, l).planned()
	if l.DeadLetters.Discard {
		p.Notes = append(p.Notes, "there is no DLQ: a message that is not retried is reported, and lost (DLQ.Discard)")
	} else {
		p.OperatorPlaces = []mq.Place{{Name: l.DLQ() + wirename.StateSuffix, Kind: "state", Settings: layout.UnlimitedArgs(), Messages: -1}}
		p.OperatorRights = operatorRights(l, s).planned()
	}
	planDelays(p, l, cfg)
	noteHandlerTimeout(p, l.Policy, cfg.ConsumerTimeout)
	return p
}

// planDelays adds how each wait of the policy is spent.
func planDelays(p *mq.Plan, l *layout.Layout, cfg *Config) {
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
		noteOrdered(p, l, cfg)
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
func noteOrdered(p *mq.Plan, l *layout.Layout, cfg *Config) {
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

// noteHandlerTimeout notes handlers that may exceed the broker's timeout.
func noteHandlerTimeout(p *mq.Plan, policy redeliver.Policy, limit time.Duration) {
	busy := policy.Timeout * time.Duration(1+policy.Immediate)
	switch {
	case policy.Timeout == redeliver.NoTimeout:
		p.Notes = append(p.Notes, fmt.Sprintf("a handler may run forever: after ConsumerTimeout (%s) the broker takes its message back and delivers it again, uncounted", limit))
	case busy > limit/2:
		p.Notes = append(p.Notes, fmt.Sprintf("a handler may run for %s, immediate retries included, after its message has waited in the process for up to %s: that is longer than ConsumerTimeout (%s), and the broker may take the message back", busy, limit/2, limit))
	}
}

// rights are what RabbitMQ must allow a user: names of queues and exchanges, for the three patterns of rabbitmqctl set_permissions.
type rights struct{ configure, write, read []string }

// planned returns the rights as a plan lists them, sorted by name.
func (r rights) planned() (all []mq.Right) {
	names := slices.Sorted(slices.Values(slices.Concat(r.configure, r.write, r.read)))
	for _, name := range slices.Compact(names) {
		right := mq.Right{Resource: "queue or exchange", Name: name}
		for _, granted := range []struct {
			operation string
			names     []string
		}{{"configure", r.configure}, {"write", r.write}, {"read", r.read}} {
			if slices.Contains(granted.names, name) {
				right.Operations = append(right.Operations, granted.operation)
			}
		}
		all = append(all, right)
	}
	return all
}

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
func subscriberRights(l *layout.Layout, s *topology.Survey) rights {
	r := rights{write: []string{defaultExchange}, read: []string{l.Queue}}
	for _, q := range l.Queues {
		if q.IsRead() {
			r.read = append(r.read, q.Name)
		}
	}
	r.configure = passiveRights(l, s, r.read)
	if l.Binding.Exchange != "" {
		r.write = append(r.write, l.Binding.Exchange)
	}
	return r
}

// creationRights returns the rights to declare what a subscription needs. A queue that dead-letters can only be declared by
// a user who may read it and write to where its dead letters go, which is the default exchange.
func creationRights(cfg *Config, l *layout.Layout) (r rights) {
	if !cfg.NoProvisioning {
		for _, q := range l.Queues {
			r.configure = append(r.configure, q.Name)
			if _, dead := q.Args[layout.DeadLetterTo]; dead && !q.IsRead() {
				r.read = append(r.read, q.Name)
			}
		}
	}
	if l.Existing {
		return r
	}
	r.configure = append(r.configure, l.Queue)
	if exchange := l.Binding.Exchange; exchange != "" {
		r.configure, r.write, r.read = append(r.configure, exchange), append(r.write, l.Queue), append(r.read, exchange)
	}
	return r
}

// operatorRights returns the rights of a person who works on the DLQ and pauses the subscription. Apart from the DLQ
// and its state, these include the locks, which are declared for each session.
func operatorRights(l *layout.Layout, s *topology.Survey) rights {
	read := []string{l.DLQ(), l.DLQ() + wirename.StateSuffix, l.Paused()}
	return rights{configure: append(dlq.LockQueues(l.DLQ()), passiveRights(l, s, read)...), write: []string{defaultExchange}, read: read}
}

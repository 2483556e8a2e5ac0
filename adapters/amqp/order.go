package amqp

import (
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
)

// A failed message of an ordered queue waits in the process, unacked, and those behind it. RabbitMQ delivers in
// order only to one consumer at a time, on one channel. If that ends, all messages come back. So single messages of
// such a queue are never returned, and its consumer is not cancelled while it has unacked messages.

// KeyHeader returns a Config.Key that reads a header, as text.
func KeyHeader(name string) func(amqp091.Delivery) string {
	return func(d amqp091.Delivery) string {
		text, _ := wire.TextOf(d.Headers[name])
		return text
	}
}

// checkOrder refuses an order that the configuration cannot keep.
func checkOrder(ps *check.Problems, cfg *Config, queue string, p redeliver.Policy) {
	_, prefix := cfg.policy(queue)
	ps.CheckOrder(prefix, p, redeliver.OrderFirstAttempts, redeliver.OrderNone, redeliver.OrderBlocking, redeliver.OrderThroughRetries)
	if !layout.Ordered(p) {
		return
	}
	if p.Order == redeliver.OrderThroughRetries && cfg.Key == nil {
		ps.Add("Key", "nil", fmt.Sprintf("it is required where the Order is OrderThroughRetries, as it is of queue %q: RabbitMQ's messages have no key of their own", queue))
	}
	if single, ok := cfg.Topology.QueueArgs[amqp091.SingleActiveConsumerArg]; ok && single != true {
		ps.Add("Topology.QueueArgs", fmt.Sprintf("%s=%v", amqp091.SingleActiveConsumerArg, single), fmt.Sprintf("must be true where the Order is %s, as it is of queue %q", p.Order, queue))
	}
	checkWaits(ps, cfg, prefix+".Backoff", p)
}

// checkWaits refuses waits that are too long to be spent with the message unacked.
func checkWaits(ps *check.Problems, cfg *Config, field string, p redeliver.Policy) {
	if _, _, ok := p.Delays(); !ok {
		if p.Order == redeliver.OrderThroughRetries { // for OrderBlocking the policy's own check reports it
			ps.Add(field, fmt.Sprintf("%T", p.Backoff), "must be able to list its delays: they are spent with the message unacked, for half of ConsumerTimeout at most")
		}
		return
	}
	var all time.Duration
	for _, longest := range p.LongestDelays() {
		all += longest
		if maxWait := cfg.ConsumerTimeout / 2; p.Order == redeliver.OrderThroughRetries && longest > maxWait {
			ps.Add(field, longest, fmt.Sprintf(
				"must wait for at most half of ConsumerTimeout, %s, jitter included, where Order is OrderThroughRetries: the message stays unacked meanwhile. Raise consumer_timeout in rabbitmq.conf and ConsumerTimeout here, or wait for less", maxWait))
			return
		}
	}
	if p.Order == redeliver.OrderBlocking && all >= cfg.ConsumerTimeout {
		ps.Add(field, all, fmt.Sprintf(
			"must plan waits of less than ConsumerTimeout, %s, in all where Order is OrderBlocking: the message stays unacked meanwhile. Retry less often, or wait for less", cfg.ConsumerTimeout))
	}
}

// boundHeld sets how long the broker leaves a message of a subscription unacked for an attempt, if the message has waited
// before as the policy plans it: for the jitter, or for a whole wait of an ordered queue, which checkWaits has bounded.
func (c *Config) boundHeld(s *engine.Subscription) {
	_, jitter, _ := s.Policy.Delays()
	before := min(jitter, c.ConsumerTimeout/4)
	if layout.Ordered(s.Policy) {
		for _, longest := range s.Policy.LongestDelays() {
			before = max(before, longest)
		}
	}
	s.MaxHeld = c.ConsumerTimeout - before
	s.MaxHeldWhy = fmt.Sprintf("the broker takes a message back that is unacked for ConsumerTimeout, %s, waits of the policy included; it and consumer_timeout in rabbitmq.conf can be raised", c.ConsumerTimeout)
}

// holders returns for each topic how long its messages may be unacked.
func (c Config) holders(topics []string) (all []*engine.Subscription) {
	c = c.withDefaults()
	for _, topic := range topics {
		queue := c.Topology.queue(topic)
		p, _ := c.policy(queue)
		s := &engine.Subscription{Origin: queue, Policy: p}
		c.boundHeld(s)
		all = append(all, s)
	}
	return all
}

// checkTimeout refuses handlers that may run longer than the broker leaves a message unacked. They would lose their
// channel and begin again, uncounted, forever.
func checkTimeout(ps *check.Problems, cfg *Config, queue string, p redeliver.Policy) {
	_, field := cfg.policy(queue)
	if n := cfg.prefetch(p) + maxUnrunPerSlot*cfg.MaxRetriesInFlight; p.Rate.PerSecond > 0 && float64(n)/p.Rate.PerSecond > cfg.ConsumerTimeout.Seconds() {
		ps.Add(field+".Rate.PerSecond", p.Rate.PerSecond, fmt.Sprintf(
			"must let the %d messages that the broker sends ahead begin within ConsumerTimeout, which is %s: the broker takes back messages that wait longer. Raise the rate, or lower Prefetch, MaxInFlight and MaxRetriesInFlight", n, cfg.ConsumerTimeout))
	}
	if p.Timeout <= cfg.ConsumerTimeout { // NoTimeout is negative; Plan notes it
		maxTimeout := cfg.ConsumerTimeout / time.Duration(1+p.Immediate)
		switch {
		case p.Timeout > maxTimeout:
			ps.Add(field+".Immediate", p.Immediate, fmt.Sprintf(
				"must be so low that (1 + Immediate) x Timeout, %d x %s, is at most ConsumerTimeout, which is %s: the message stays unacked during immediate retries, and the broker takes it back. Lower Immediate or Timeout, or raise consumer_timeout in rabbitmq.conf and ConsumerTimeout here",
				1+p.Immediate, p.Timeout, cfg.ConsumerTimeout))
		case p.MaxTimeout > maxTimeout:
			ps.Add(field+".MaxTimeout", p.MaxTimeout, fmt.Sprintf(
				"must be at most ConsumerTimeout / (1 + Immediate), which is %s: the message stays unacked during immediate retries", maxTimeout))
		}
		return
	}
	ps.Add(field+".Timeout", p.Timeout, fmt.Sprintf(
		"must be at most ConsumerTimeout, which is %s: the broker takes the message back from a handler that runs longer. Raise consumer_timeout in rabbitmq.conf and ConsumerTimeout here, or lower the Timeout", cfg.ConsumerTimeout))
}

package amqp

import (
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// slack is how much longer a level may be than the wait that is put on it: the
// due time is reckoned before the message is written, so what is left is always
// a little less than the level that was meant. It may cost so much lateness.
const slack = 100 * time.Millisecond

// Limits that our queues have on the broker's side.
const (
	// deliveries is the broker's own limit on queues that we consume: it never
	// comes first, because crashes are counted, and what reaches it goes to the DLQ.
	deliveries = 1000
	// noLimit is for the DLQ, where each look is a delivery. RabbitMQ 4 would
	// drop a message after the twentieth without it; -1 is not known to 3.x.
	noLimit = 1<<31 - 1
)

// layout is the queues of one subscription.
type layout struct {
	topic, queue string
	policy       redeliver.Policy
	fingerprint  string
	ladder       delayqueue.Ladder
	names        Names
	shards       int
	queues       []ownQueue
}

// ownQueue is one queue that redeliver declares.
type ownQueue struct {
	name  string
	kind  kind
	level time.Duration // of a delay queue
	args  amqp.Table
}

type kind string

const (
	mainQueue    kind = "queue"
	delayQueue   kind = "delay"
	retryQueue   kind = "retry"
	suspectQueue kind = "suspects"
	deadQueue    kind = "dlq"
)

func newLayout(cfg *Config, topic string) (*layout, error) {
	queue := cfg.Topology.queue(topic)
	var ps redeliver.Problems
	checkQueue(&ps, fmt.Sprintf("queue of topic %q", topic), queue)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("amqp: %w", err)
	}
	policy := cfg.policy(queue)
	l := &layout{
		topic: topic, queue: queue, policy: policy, fingerprint: delayqueue.Fingerprint(policy),
		ladder: delayqueue.NewLadder(policy), names: cfg.Names, shards: cfg.Shards,
	}
	dead, back := l.dlq(), l.retry()
	l.add(dead, deadQueue, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum, deliveryLimit: int32(noLimit)})
	l.add(back, retryQueue, deadLettering(dead))
	l.add(l.suspects(), suspectQueue, deadLettering(dead))
	for _, level := range l.ladder {
		for shard := range l.shards {
			args := deadLettering(back)
			delete(args, deliveryLimit)
			args[amqp.QueueMessageTTLArg] = level.Milliseconds()
			l.add(l.names.delay(queue, level, shard), delayQueue, args)
			l.queues[len(l.queues)-1].level = level
		}
	}
	return l, nil
}

const (
	deliveryLimit     = "x-delivery-limit"
	deadLetterTo      = "x-dead-letter-exchange"
	deadLetterKey     = "x-dead-letter-routing-key"
	deadLetterSafely  = "x-dead-letter-strategy"
	atLeastOnce       = "at-least-once"
	declineWhenItFull = "reject-publish"
)

// deadLettering are the arguments of a quorum queue that moves its messages on
// to another queue, and loses none when that one is away.
func deadLettering(to string) amqp.Table {
	return amqp.Table{
		amqp.QueueTypeArg: amqp.QueueTypeQuorum, amqp.QueueOverflowArg: declineWhenItFull,
		deadLetterTo: "", deadLetterKey: to, deadLetterSafely: atLeastOnce, deliveryLimit: int32(deliveries),
	}
}

func (l *layout) add(name string, k kind, args amqp.Table) {
	l.queues = append(l.queues, ownQueue{name: name, kind: k, args: args})
}

func (l *layout) retry() string    { return l.names.retry(l.queue) }
func (l *layout) dlq() string      { return l.names.dlq(l.queue) }
func (l *layout) suspects() string { return l.names.suspects(l.queue) }

// declare makes sure that every queue, exchange and binding is there. All
// problems are in one error.
func (c *Client) declare(d *declarer, l *layout) error {
	var ps redeliver.Problems
	for _, q := range l.queues {
		d.queue(&ps, q, !c.cfg.NoProvisioning)
	}
	t := c.cfg.Topology
	origin := ownQueue{name: l.queue, kind: mainQueue, args: t.QueueArgs}
	if origin.args == nil {
		origin.args = deadLettering(l.dlq())
	}
	// A queue that exists is the user's, whatever its arguments.
	if exists := d.exists(&ps, l.queue); !exists && t.Existing {
		ps.Add("queue "+l.queue, "missing", "must exist: the topology is of existing queues. Declare it, or use another Topology")
	} else if !exists {
		d.queue(&ps, origin, true)
	}
	if exchange := t.exchange(l.topic); exchange != "" && !t.Existing {
		d.bind(&ps, t, l.topic)
	}
	if d.err != nil {
		return d.err
	}
	if err := ps.Err(); err != nil {
		return fmt.Errorf("amqp: %w", err)
	}
	return nil
}

// declarer declares queues, each on a channel that an error has not closed.
type declarer struct {
	open func() (*amqp.Channel, error)
	ch   *amqp.Channel
	err  error // the connection's; nothing goes any more
}

func (d *declarer) channel() *amqp.Channel {
	if d.err == nil && (d.ch == nil || d.ch.IsClosed()) {
		d.ch, d.err = d.open()
	}
	return d.ch
}

func (d *declarer) close() {
	if d.ch != nil {
		_ = d.ch.Close() // it is closed already, or its connection is gone
	}
}

// do calls what and says what the broker had against it.
func (d *declarer) do(what func(*amqp.Channel) error) *amqp.Error {
	ch := d.channel()
	if d.err != nil {
		return nil
	}
	err := what(ch)
	if refused, ok := errors.AsType[*amqp.Error](err); ok && refused.Server {
		return refused
	}
	if err != nil {
		d.err = fmt.Errorf("amqp: declaring queues: %w", err)
	}
	return nil //nolint:nilerr // It is in d.err.
}

// exists tells whether a queue is there.
func (d *declarer) exists(ps *redeliver.Problems, name string) bool {
	refused := d.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	switch {
	case refused == nil:
		return d.err == nil
	case refused.Code == amqp.NotFound:
		return false
	case refused.Code == amqp.ResourceLocked:
		ps.Add("queue "+name, "exclusive", "must not be exclusive to another connection: its retries would outlive it")
		return true
	default:
		ps.Add("queue "+name, refused.Code, "the broker says: "+refused.Reason)
		return true
	}
}

// queue declares a queue, or, where that is not wanted, looks that it is there.
func (d *declarer) queue(ps *redeliver.Problems, q ownQueue, create bool) {
	if !create {
		if !d.exists(ps, q.name) && d.err == nil {
			ps.Add("queue "+q.name, "missing", "must exist: NoProvisioning is set. Declare it durable with the arguments "+argsText(q.args))
		}
		return
	}
	refused := d.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(q.name, true, false, false, false, q.args)
		return err
	})
	switch {
	case refused == nil:
	case refused.Code == amqp.PreconditionFailed:
		ps.Add("queue "+q.name, "declared otherwise", fmt.Sprintf(
			"must have the arguments %s; the broker says: %s. Delete it when it is empty, or give ours other Names", argsText(q.args), refused.Reason))
	default:
		ps.Add("queue "+q.name, refused.Code, "cannot be declared; the broker says: "+refused.Reason)
	}
}

// bind declares the exchange of a topic and binds the topic's queue to it.
func (d *declarer) bind(ps *redeliver.Problems, t Topology, topic string) {
	exchange := t.exchange(topic)
	if !d.exchange(ps, exchange, t.kind()) {
		return
	}
	for _, key := range t.bindingKeys(topic) {
		refused := d.do(func(ch *amqp.Channel) error { return ch.QueueBind(t.queue(topic), key, exchange, false, t.BindingArgs) })
		if refused != nil {
			ps.Add("binding of queue "+t.queue(topic), key, "the broker says: "+refused.Reason)
		}
	}
}

// exchange declares an exchange; one that exists is used whatever its flags.
func (d *declarer) exchange(ps *redeliver.Problems, name, kind string) bool {
	refused := d.do(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(name, kind, true, false, false, false, nil)
	})
	if refused != nil && refused.Code == amqp.NotFound {
		refused = d.do(func(ch *amqp.Channel) error { return ch.ExchangeDeclare(name, kind, true, false, false, false, nil) })
	}
	if refused != nil {
		ps.Add("exchange "+name, kind, "cannot be declared; the broker says: "+refused.Reason)
	}
	return refused == nil && d.err == nil
}

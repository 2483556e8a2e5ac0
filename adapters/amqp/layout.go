package amqp

import (
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// levelSlack is how much longer than a wait its level may be. The due time is set before the message is written, so
// the remaining time is always a little shorter than the intended level. It may add that much lateness.
const levelSlack = 100 * time.Millisecond

// A subscriber reads its short levels itself and holds their messages until they are due. That saves a dead-lettering
// for each retry, which a single worker does and which is the slowest part of the broker's queues, and a second pass
// through a queue. Unread messages are dead-lettered nevertheless: those of a level that the policy no longer has,
// and those beyond the prefetch.
const (
	maxReadLevel = time.Minute      // the longest level that is read
	readGrace    = 10 * time.Second // how long after its level a message waits for a reader
)

// The broker's limits on redeliver's queues.
const (
	// ownDeliveryLimit is the delivery limit of queues that redeliver consumes. The broker never reaches it first,
	// because redeliver counts crashes. A message that does reach it goes to the DLQ.
	ownDeliveryLimit = 1000
	// noLimit is for the DLQ, where each scan is a delivery. RabbitMQ 4 would drop a message after 20 deliveries; 3.x
	// does not know -1.
	noLimit = 1<<31 - 1
)

// layout is the set of queues of one subscription.
type layout struct {
	topic, queue string
	policy       redeliver.Policy
	fingerprint  string
	ladder       delayqueue.Ladder
	jitter       time.Duration // the most that the policy adds to a delay
	names        Names
	shards       int
	queues       []ownQueue
	expires      bool // the queue may be deleted while it has no consumer
	discards     bool // there is no DLQ
}

// ownQueue is a queue that redeliver declares.
type ownQueue struct {
	name  string
	kind  kind
	level time.Duration // of a delay queue
	args  amqp091.Table
}

// isRead reports whether a subscriber reads the queue beside the origin.
func (q ownQueue) isRead() bool {
	return q.kind == retryQueue || q.kind == suspectQueue || q.kind == placeQueue || q.kind == pauseQueue || q.kind == delayQueue && q.level <= maxReadLevel
}

type kind string

const (
	mainQueue    kind = "queue"
	delayQueue   kind = "delay"
	retryQueue   kind = "retry"
	suspectQueue kind = "suspects"
	placeQueue   kind = "place"
	pauseQueue   kind = "paused"
	deadQueue    kind = "dlq"
)

func newLayout(cfg *Config, topic string) (*layout, error) {
	queue := cfg.Topology.queue(topic)
	var ps redeliver.Problems
	checkQueue(&ps, fmt.Sprintf("queue of topic %q", topic), queue)
	cfg.Names.check(&ps, queue)
	policy := cfg.policy(queue)
	checkTimeout(&ps, cfg, queue, policy)
	checkOrder(&ps, cfg, queue, policy)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("amqp: %w", err)
	}
	l := &layout{
		topic: topic, queue: queue, policy: policy, fingerprint: delayqueue.Fingerprint(policy),
		ladder: delayqueue.NewLadder(policy), names: cfg.Names, shards: cfg.Shards,
	}
	_, l.jitter, _ = policy.Delays()
	_, l.expires = cfg.Topology.QueueArgs["x-expires"]
	l.discards = cfg.DLQ.Discard
	back := l.retry()
	if !l.discards {
		kept := unlimitedArgs()
		if cfg.DLQ.Retention > 0 {
			kept[amqp091.QueueMessageTTLArg] = cfg.DLQ.Retention.Milliseconds()
		}
		l.add(l.dlq(), deadQueue, kept)
	}
	l.add(back, retryQueue, l.deadLetteringArgs())
	l.add(l.suspects(), suspectQueue, l.deadLetteringArgs())
	newestOnly := unlimitedArgs()
	newestOnly[amqp091.QueueMaxLenArg] = int32(1)
	l.add(l.paused(), pauseQueue, newestOnly)
	if l.ordered() {
		l.add(l.place(), placeQueue, unlimitedArgs())
	}
	for _, level := range l.ladder {
		for shard := range l.shards {
			args := deadLetterArgs(back)
			delete(args, deliveryLimit)
			ttl := level
			if level <= maxReadLevel {
				ttl += readGrace
			}
			args[amqp091.QueueMessageTTLArg] = ttl.Milliseconds()
			l.add(l.names.delay(queue, level, shard), delayQueue, args)
			l.queues[len(l.queues)-1].level = level
		}
	}
	return l, nil
}

// ordered reports whether the queue's policy is ordered.
func (l *layout) ordered() bool { return ordered(l.policy) }

// mustHop reports whether a message with this remaining time leaves a level for a shorter one when the level is over.
// Otherwise the level's reader holds it. It holds a rest of jitter, because a hop would only bring that to another
// reader.
func (l *layout) mustHop(left, level time.Duration) bool {
	rest := left - level
	return rest > l.jitter && rest >= l.ladder[0]
}

// checkTimeout refuses handlers that may run longer than the broker leaves a message unacked. They would lose their
// channel and begin again, uncounted, forever.
func checkTimeout(ps *redeliver.Problems, cfg *Config, queue string, p redeliver.Policy) {
	field := "Policy"
	if _, ok := cfg.Queues[queue]; ok {
		field = fmt.Sprintf("Queues[%q]", queue)
	}
	if n := cfg.prefetch(p) + maxUnrunPerSlot*cfg.MaxRetriesInFlight; p.Rate.PerSecond > 0 && float64(n)/p.Rate.PerSecond > cfg.ConsumerTimeout.Seconds() {
		ps.Add(field+".Rate.PerSecond", p.Rate.PerSecond, fmt.Sprintf(
			"must let the %d messages that the broker sends ahead begin within ConsumerTimeout, which is %s: the broker takes back messages that wait longer. Raise the rate, or lower Prefetch, MaxInFlight and MaxRetriesInFlight", n, cfg.ConsumerTimeout))
	}
	if p.Timeout <= cfg.ConsumerTimeout && p.MaxTimeout > cfg.ConsumerTimeout {
		ps.Add(field+".MaxTimeout", p.MaxTimeout, fmt.Sprintf("must be at most ConsumerTimeout, which is %s, as Timeout must", cfg.ConsumerTimeout))
	}
	if p.Timeout <= cfg.ConsumerTimeout { // NoTimeout is negative; Plan notes it
		return
	}
	ps.Add(field+".Timeout", p.Timeout, fmt.Sprintf(
		"must be at most ConsumerTimeout, which is %s: the broker takes the message back from a handler that runs longer. Raise consumer_timeout in rabbitmq.conf and ConsumerTimeout here, or lower the Timeout", cfg.ConsumerTimeout))
}

const (
	deliveryLimit      = "x-delivery-limit"
	deadLetterTo       = "x-dead-letter-exchange"
	deadLetterKey      = "x-dead-letter-routing-key"
	deadLetterStrategy = "x-dead-letter-strategy"
	atLeastOnce        = "at-least-once"
	rejectPublish      = "reject-publish"
)

// deadLetterArgs returns the arguments of a quorum queue that dead-letters to another queue, and loses nothing while
// that is away.
func deadLetterArgs(to string) amqp091.Table {
	return amqp091.Table{
		amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, amqp091.QueueOverflowArg: rejectPublish,
		deadLetterTo: "", deadLetterKey: to, deadLetterStrategy: atLeastOnce, deliveryLimit: int32(ownDeliveryLimit),
	}
}

// unlimitedArgs returns the arguments of a quorum queue that drops nothing.
func unlimitedArgs() amqp091.Table {
	return amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, deliveryLimit: int32(noLimit)}
}

// deadLetteringArgs returns the arguments of a quorum queue that dead-letters to the DLQ before it drops a message.
// Without a DLQ it drops nothing: redeliver decides and reports.
func (l *layout) deadLetteringArgs() amqp091.Table {
	if l.discards {
		return unlimitedArgs()
	}
	return deadLetterArgs(l.dlq())
}

// originQueue returns the queue of the subscription as redeliver would create it.
func (l *layout) originQueue(t Topology) ownQueue {
	args := l.deadLetteringArgs()
	if l.ordered() { // crashes are counted otherwise, and nothing is rewritten
		args[deliveryLimit] = int32(noLimit)
	}
	if t.QueueArgs != nil {
		args = t.QueueArgs
	}
	if l.ordered() {
		args = withSingleConsumer(args)
	}
	return ownQueue{name: l.queue, kind: mainQueue, args: args}
}

func (l *layout) add(name string, k kind, args amqp091.Table) {
	l.queues = append(l.queues, ownQueue{name: name, kind: k, args: args})
}

func (l *layout) retry() string    { return l.names.retry(l.queue) }
func (l *layout) dlq() string      { return l.names.dlq(l.queue) }
func (l *layout) suspects() string { return l.names.suspects(l.queue) }
func (l *layout) place() string    { return l.names.place(l.queue) }
func (l *layout) paused() string   { return l.names.paused(l.queue) }

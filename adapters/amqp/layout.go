package amqp

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
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
	// rabbitMQ4Limit is the default of a quorum queue since RabbitMQ 4.
	rabbitMQ4Limit = 20
)

// layout is the set of queues of one subscription.
type layout struct {
	layoutOptions

	fingerprint string
	ladder      delayqueue.Ladder
	jitter      time.Duration // the most that the policy adds to a delay
	queues      []ownQueue
	expires     bool // the queue may be deleted while it has no consumer
	discards    bool // there is no DLQ
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

// layoutOptions describe a subscription.
type layoutOptions struct {
	Topic, Queue string
	Policy       redeliver.Policy // with its defaults
	Names        queueNames
	Shards       int
	DLQ          deadletter.Config
	Binding      binding
	// QueueArgs are the arguments of the queue if it is created, or nil for redeliver's own.
	QueueArgs amqp091.Table
	// Existing says that the queue and its binding must exist.
	Existing bool
}

// binding is how messages come to a queue.
type binding struct {
	Exchange string // "" is the default exchange, which needs no binding
	Kind     string
	Keys     []string
	Args     amqp091.Table
}

func makeLayout(opt layoutOptions) *layout {
	l := &layout{
		layoutOptions: opt, fingerprint: delayqueue.Fingerprint(opt.Policy), ladder: delayqueue.NewLadder(opt.Policy), discards: opt.DLQ.Discard,
	}
	_, l.jitter, _ = opt.Policy.Delays()
	_, l.expires = opt.QueueArgs["x-expires"]
	back := l.retry()
	if !l.discards {
		kept := unlimitedArgs()
		if opt.DLQ.Retention > 0 {
			kept[amqp091.QueueMessageTTLArg] = opt.DLQ.Retention.Milliseconds()
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
		for shard := range l.Shards {
			args := deadLetterArgs(back)
			delete(args, deliveryLimit)
			ttl := level
			if level <= maxReadLevel {
				ttl += readGrace
			}
			args[amqp091.QueueMessageTTLArg] = ttl.Milliseconds()
			l.add(l.Names.delay(opt.Queue, level, shard), delayQueue, args)
			l.queues[len(l.queues)-1].level = level
		}
	}
	return l
}

// ordered reports whether a policy keeps the order of messages.
func ordered(p redeliver.Policy) bool {
	return p.Order == redeliver.Blocking || p.Order == redeliver.PerKey
}

// ordered reports whether the queue's policy is ordered.
func (l *layout) ordered() bool { return ordered(l.Policy) }

// mustHop reports whether a message with this remaining time leaves a level for a shorter one when the level is over.
// Otherwise the level's reader holds it. It holds a rest of jitter, because a hop would only bring that to another
// reader.
func (l *layout) mustHop(left, level time.Duration) bool {
	rest := left - level
	return rest > l.jitter && rest >= l.ladder[0]
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
func (l *layout) originQueue() ownQueue {
	args := l.deadLetteringArgs()
	if l.ordered() { // crashes are counted otherwise, and nothing is rewritten
		args[deliveryLimit] = int32(noLimit)
	}
	if l.QueueArgs != nil {
		args = l.QueueArgs
	}
	if l.ordered() {
		args = withSingleConsumer(args)
	}
	return ownQueue{name: l.Queue, kind: mainQueue, args: args}
}

func (l *layout) add(name string, k kind, args amqp091.Table) {
	l.queues = append(l.queues, ownQueue{name: name, kind: k, args: args})
}

func (l *layout) retry() string    { return l.Names.retry(l.Queue) }
func (l *layout) dlq() string      { return l.Names.dlq(l.Queue) }
func (l *layout) suspects() string { return l.Names.suspects(l.Queue) }
func (l *layout) place() string    { return l.Names.place(l.Queue) }
func (l *layout) paused() string   { return l.Names.paused(l.Queue) }

// pattern returns a pattern for the names of the queue, redeliver's queues, and leftovers of older policies.
func (l *layout) pattern() string {
	q := regexp.QuoteMeta
	return fmt.Sprintf(`^(%s|%s|%s(\..*)?)$`, q(l.Queue), q(l.dlq()), q(l.retry()))
}

// shardOf parses the shard in the name of a delay queue, or returns -1.
func (l *layout) shardOf(name string, level time.Duration) int {
	rest, ok := strings.CutPrefix(name, l.Names.delay(l.Queue, level, 0))
	if rest == "" && ok {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimPrefix(rest, "."))
	if err != nil || n < 1 || l.Names.delay(l.Queue, level, n) != name {
		return -1
	}
	return n
}

// withSingleConsumer adds the argument for a single active consumer.
func withSingleConsumer(args amqp091.Table) amqp091.Table {
	args = maps.Clone(args)
	if args == nil {
		args = amqp091.Table{}
	}
	args[amqp091.SingleActiveConsumerArg] = true
	return args
}

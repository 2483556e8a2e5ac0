package layout

import (
	"fmt"
	"maps"
	"regexp"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wirename"
)

// LevelSlack is how much longer than the remaining wait a level may be. The due time is set before the message is
// written, so that wait is always a little shorter than the level. A message may be that much late.
const LevelSlack = 100 * time.Millisecond

// A subscriber reads its short levels itself and holds their messages until they are due. That saves a second pass
// through a queue, and a dead-lettering for each retry, which is slow, because a queue has a single worker for that.
// Unread messages are dead-lettered nevertheless: those of a level that the policy no longer has,
// and those beyond the prefetch.
const (
	MaxReadLevel = time.Minute      // the longest level that is read
	readGrace    = 10 * time.Second // how long after its level a message waits for a reader
)

// The broker's limits on redeliver's queues.
const (
	// OwnDeliveryLimit is the delivery limit of the retry queue, the suspects and an origin that redeliver declares. redeliver
	// acts at a much lower count. A message that does reach the limit goes to the DLQ.
	OwnDeliveryLimit = 1000
	// NoLimit is for the DLQ, where each scan is a delivery. RabbitMQ 4 would drop a message after 20 deliveries; 3.x
	// does not know -1.
	NoLimit = 1<<31 - 1
	// MaxReturns is how often a message comes back before redeliver rewrites it, which resets the broker's count.
	MaxReturns = 5
)

// Layout is the set of queues of one subscription.
type Layout struct {
	Options

	Fingerprint string
	Ladder      delayqueue.Ladder
	Jitter      time.Duration // the most that the policy adds to a delay
	Queues      []Queue
	Expires     bool // the queue may be deleted while it has no consumer
	Classic     bool // the queue is a classic one, as far as known: its messages may bring any x-delivery-count
}

// Queue is a queue that redeliver declares.
type Queue struct {
	Name  string
	Kind  Kind
	Level time.Duration // of a delay queue
	Args  amqp091.Table
}

// IsRead reports whether a subscriber reads the queue beside the origin.
func (q Queue) IsRead() bool {
	return q.Kind == RetryQueue || q.Kind == SuspectQueue || q.Kind == PlaceQueue || q.Kind == PauseQueue || q.Kind == DelayQueue && q.Level <= MaxReadLevel
}

type Kind string

const (
	MainQueue    Kind = "queue"
	DelayQueue   Kind = "delay"
	RetryQueue   Kind = "retry"
	SuspectQueue Kind = "suspects"
	PlaceQueue   Kind = "place"
	PauseQueue   Kind = "paused"
	DeadQueue    Kind = "dlq"
)

// Options describe a subscription.
type Options struct {
	Topic, Queue string
	Policy       redeliver.Policy // with its defaults
	Names        Names
	DeadLetters  deadletter.Config
	Binding      Binding
	// QueueArgs are the arguments of the queue if it is created, or nil for redeliver's own.
	QueueArgs amqp091.Table
	// Existing says that the queue and its binding must exist.
	Existing bool
}

// Binding is how messages come to a queue.
type Binding struct {
	Exchange string // "" is the default exchange, which needs no binding
	Kind     string
	Keys     []string
	Args     amqp091.Table
}

func New(opt Options) *Layout {
	l := &Layout{
		Options: opt, Fingerprint: delayqueue.Fingerprint(opt.Policy), Ladder: delayqueue.NewLadder(opt.Policy),
	}
	_, l.Jitter, _ = opt.Policy.Delays()
	_, l.Expires = opt.QueueArgs["x-expires"]
	l.Classic = opt.QueueArgs != nil && opt.QueueArgs[amqp091.QueueTypeArg] != amqp091.QueueTypeQuorum
	back := l.Retry()
	if !l.DeadLetters.Discard {
		kept := UnlimitedArgs()
		if opt.DeadLetters.Retention > 0 {
			kept[amqp091.QueueMessageTTLArg] = opt.DeadLetters.Retention.Milliseconds()
		}
		l.add(l.DLQ(), DeadQueue, kept)
	}
	l.add(back, RetryQueue, l.deadLetteringArgs())
	l.add(l.Suspects(), SuspectQueue, l.deadLetteringArgs())
	newestOnly := UnlimitedArgs()
	newestOnly[amqp091.QueueMaxLenArg] = int32(1)
	delete(newestOnly, amqp091.QueueOverflowArg) // a new mark replaces the old one
	l.add(l.Paused(), PauseQueue, newestOnly)
	if l.Ordered() {
		l.add(l.Place(), PlaceQueue, withSingleConsumer(UnlimitedArgs()))
	}
	for _, level := range l.Ladder {
		args := deadLetterArgs(back)
		delete(args, DeliveryLimit) // at the broker's own limit, the message goes to the retry queue, which holds it until due
		ttl := level
		if level <= MaxReadLevel {
			ttl += readGrace
		}
		args[amqp091.QueueMessageTTLArg] = ttl.Milliseconds()
		l.add(l.Names.DelayOf(opt.Queue, level), DelayQueue, args)
		l.Queues[len(l.Queues)-1].Level = level
	}
	return l
}

// Ordered reports whether a policy keeps the order of messages.
func Ordered(p redeliver.Policy) bool {
	return p.Order == redeliver.OrderBlocking || p.Order == redeliver.OrderThroughRetries
}

// Ordered reports whether the queue's policy is ordered.
func (l *Layout) Ordered() bool { return Ordered(l.Policy) }

// MustHop reports whether a message with this remaining time leaves a level for a shorter one when the level is over.
// Otherwise the level's reader holds it. A rest within the jitter is held, because a hop would only change the reader.
func (l *Layout) MustHop(left, level time.Duration) bool {
	rest := left - level
	return rest > l.Jitter && rest >= l.Ladder[0]
}

const (
	DeliveryLimit      = "x-delivery-limit"
	DeadLetterTo       = "x-dead-letter-exchange"
	deadLetterKey      = "x-dead-letter-routing-key"
	deadLetterStrategy = "x-dead-letter-strategy"
	atLeastOnce        = "at-least-once"
	RejectPublish      = "reject-publish"
)

// deadLetterArgs returns the arguments of a quorum queue that dead-letters to another queue, and loses nothing while
// that queue is unavailable.
func deadLetterArgs(to string) amqp091.Table {
	return amqp091.Table{
		amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, amqp091.QueueOverflowArg: RejectPublish,
		DeadLetterTo: "", deadLetterKey: to, deadLetterStrategy: atLeastOnce, DeliveryLimit: int32(OwnDeliveryLimit),
	}
}

// UnlimitedArgs returns the arguments of a quorum queue that drops nothing. If a policy limits its length, it refuses
// messages, which redeliver notices, instead of dropping old ones.
func UnlimitedArgs() amqp091.Table {
	return amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, DeliveryLimit: int32(NoLimit), amqp091.QueueOverflowArg: RejectPublish}
}

// IsWished reports whether redeliver can do without an argument of one of its queues: an older version declared the queue
// without it, or the broker does not know it. It then only protects against what an administrator may do.
func (q Queue) IsWished(arg string) bool {
	_, deadLetters := q.Args[DeadLetterTo]
	switch arg {
	case amqp091.QueueOverflowArg: // at-least-once dead-lettering needs it
		return !deadLetters
	case DeliveryLimit: // a message is rewritten long before any limit
		return q.Kind == RetryQueue || q.Kind == SuspectQueue
	case amqp091.QueueMaxLenArg: // the oldest mark counts instead of the newest
		return q.Kind == PauseQueue
	default:
		return false
	}
}

// deadLetteringArgs returns the arguments of a quorum queue that dead-letters to the DLQ before it drops a message.
// Without a DLQ it drops nothing: redeliver decides and reports.
func (l *Layout) deadLetteringArgs() amqp091.Table {
	if l.DeadLetters.Discard {
		return UnlimitedArgs()
	}
	return deadLetterArgs(l.DLQ())
}

// OriginQueue returns the queue of the subscription as redeliver would create it.
func (l *Layout) OriginQueue() Queue {
	args := l.deadLetteringArgs()
	if l.Ordered() { // crashes are counted otherwise, and nothing is rewritten
		args[DeliveryLimit] = int32(NoLimit)
	}
	if l.QueueArgs != nil {
		args = l.QueueArgs
	}
	if l.Ordered() {
		args = withSingleConsumer(args)
	}
	return Queue{Name: l.Queue, Kind: MainQueue, Args: args}
}

// Places returns the names of the subscription's queues.
func (l *Layout) Places() engine.Places {
	p := engine.Places{Origin: l.Queue}
	for _, q := range l.Queues {
		if q.Kind == DeadQueue {
			p.DLQ = q.Name
			p.Own = append(p.Own, q.Name+wirename.StateSuffix)
		} else {
			p.Own = append(p.Own, q.Name)
		}
	}
	return p
}

func (l *Layout) add(name string, k Kind, args amqp091.Table) {
	l.Queues = append(l.Queues, Queue{Name: name, Kind: k, Args: args})
}

func (l *Layout) Retry() string    { return l.Names.RetryOf(l.Queue) }
func (l *Layout) DLQ() string      { return l.Names.DLQOf(l.Queue) }
func (l *Layout) Suspects() string { return l.Names.suspectsOf(l.Queue) }
func (l *Layout) Place() string    { return l.Names.placeOf(l.Queue) }
func (l *Layout) Paused() string   { return l.Names.pausedOf(l.Queue) }

// Pattern returns a pattern for the names of the queue, redeliver's queues, and leftovers of older policies.
func (l *Layout) Pattern() string {
	q := regexp.QuoteMeta
	return fmt.Sprintf(`^(%s|%s|%s(\..*)?)$`, q(l.Queue), q(l.DLQ()), q(l.Retry()))
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

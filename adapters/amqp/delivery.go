package amqp

import (
	"context"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/notes"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// delivery is one message on one channel, from its arrival until it is acked or returned. These files handle it, in
// this order:
//
//	subscriber.go, open.go        start readers, each with an engine
//	consume.go, consumebatch.go   handlers of deliveries
//	source.go                     one channel that reads a queue: accepts, settles and returns deliveries
//	intake.go                     its consumers, and how many messages the broker sends
//	hold.go                       what it does while nothing may begin
//	internal/wire                 separates the user's part from redeliver's
//	arrive.go                     decides the next step
//	codec.go                      shows it to the handler and the policy
//	store.go, internal/link       write its copy
//	acks.go                       acks it
//	suspects.go                   runs it alone, from a queue of suspects
//	notes.go, internal/notes      keep its attempts while it waits in its place, and run it alone there
//
// The other packages:
//
//	internal/layout               names and arguments of the queues
//	internal/topology             checks and declares them: start, plan, doctor, old levels
//	internal/management           the management API, and which setting of a queue counts
//	internal/dlq, internal/scan   the DLQ's driver; reading a queue to its end
//	internal/pausemark            the mark of a paused subscription
type delivery struct {
	wire.Record
	ackEntry // its entry in the channel's acks

	tag         uint64
	arrived     time.Time
	redelivered bool // the broker marks it as redelivered
	m           *driver.Message[*delivery]

	state   *redeliver.State // brought by the message or remembered by this process; nil for a first delivery
	rewrite bool             // rewrite it, because it came back often
	// rewritten is how often it was rewritten before it came.
	rewritten int
	key       string // if the Order is OrderThroughRetries
	running   bool   // has a handler, or is being written to its next place
	attempt   int    // how often it has begun

	acker     acker                 // the Acknowledger of its first attempt here
	lastAcker atomic.Pointer[acker] // that of its latest attempt; nil before the first

	// For a suspect: the function that ends its turn, and whether its ack was sent.
	endQueueTurn context.CancelFunc
	ackWritten   atomic.Bool

	// For a message of an ordered queue, see notes.go.
	note    *notes.Note
	writes  int         // tasks that write the note; it does not begin before they end
	suspect bool        // it runs alone
	hasTurn atomic.Bool // it runs alone now
	crashes int         // how often it has killed its process, if it is a suspect

	size int // in memory, in bytes

	// For a message that goes to the DLQ in parts. Only one write at a time uses these.
	maxBody int // bytes that the broker accepts, after it refused the message as too large
	parts   int // parts that the DLQ has
}

// Declined reports whether the handler of the latest attempt has nacked or rejected the delivery.
func (d *delivery) Declined() bool {
	last := d.lastAcker.Load()
	return last != nil && last.answer.Load() != answerNone
}

// slab allocates deliveries that a channel brings one after another, so that a successful message allocates nothing
// else. A slab lives as long as any of its deliveries, with their messages. So a slab ends early if these are
// large, and a channel with little traffic uses small ones. One slab keeps at most maxSlab messages and maxSlabBytes,
// plus the last message.
type slab struct {
	deliveries []delivery
	bytes      int // of its messages
	size       int
}

const (
	maxSlab      = 64
	maxSlabBytes = 64 << 10
)

// delivery returns a new delivery.
func (s *slab) delivery(d *amqp091.Delivery) *delivery {
	if len(s.deliveries) == 0 || s.bytes > maxSlabBytes {
		s.size, s.bytes = min(max(1, 2*s.size), maxSlab), 0
		s.deliveries = make([]delivery, s.size)
	}
	x := &s.deliveries[0]
	s.deliveries = s.deliveries[1:]
	x.size = wire.MemoryOf(d)
	s.bytes += x.size
	x.Delivery, x.tag, x.arrived, x.redelivered = *d, d.DeliveryTag, time.Now(), d.Redelivered
	// Only the source acks.
	x.Acknowledger, x.DeliveryTag, x.ConsumerTag = nil, 0, ""
	return x
}

// DeliveryFromContext returns the delivery behind the message whose handler got ctx, as it first
// came from its queue: properties, headers of every type, exchange and routing key. It is nil for a
// context of another message. It must be neither changed nor acked.
func DeliveryFromContext(ctx context.Context) *amqp091.Delivery {
	if d := engine.FromContext(ctx); d != nil {
		if r, ok := d.Record().(*delivery); ok {
			return &r.Delivery
		}
	}
	return nil
}

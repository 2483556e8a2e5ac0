package amqp

import (
	"context"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// entry is one delivery on its way through a lane.
type entry struct {
	delayqueue.Seat

	lane    *lane
	rec     record
	tag     uint64
	arrived time.Time
	again   bool // it was delivered before
	then    then
	times   int // a suspect's crashes
	copies  int // how often it was written anew because it had come back often
	acked
	slotted atomic.Bool // it has one of its lane's slots
	busy    atomic.Bool // it counts in the client's turn
	key     string      // of a queue that keeps its order
	keyed   bool
	behind  *entry                          // the next of the same key
	solo    *solo                           // of a suspect there
	sits    atomic.Bool                     // it waits in place
	waited  atomic.Pointer[redeliver.State] // what it waited for last
	unsure  *pending                        // how it was written, while nobody knows whether it was
	maxBody int                             // bytes that the broker takes, of a message that it refused as too large
	parts   int                             // of its body, that the DLQ has

	state    *redeliver.State     // what it brought from a queue that we write
	d        *delayqueue.Delivery // delivery, once it leaves for the handler
	delivery delayqueue.Delivery
	msg      *message.Message   // nil where the handler takes deliveries
	attempt  delayqueue.Attempt // where it does
	says     acker              // of that attempt
	batched  *BatchMessage      // where deliveries are handled many at a time
}

// then is what is to be done with an entry.
type then uint8

const (
	toHandler  then = iota
	toLevel         // hop to a shorter level
	toRetry         // it has come back often: to the way back, where it is counted from the beginning
	toOrigin        // a delayed publish is due
	toSuspects      // it may have killed its process
	toDLQ           // it has, too often
)

// Delivery implements [delayqueue.Flyer].
func (e *entry) Delivery() *delayqueue.Delivery { return e.d }

// Handed implements [delayqueue.Flyer].
func (e *entry) Handed() *message.Message { return e.msg }

// rest notes that no handler of the entry runs any more, from any goroutine: what
// is only to be written somewhere, however long that takes, holds up no suspect.
func (e *entry) rest() {
	if e.busy.Swap(false) {
		e.lane.r.client.turn.Rest()
	}
}

// Moved implements [delayqueue.Mover].
func (e *entry) Moved(forwarded bool) {
	how := delayqueue.Abandoned
	if forwarded {
		how = delayqueue.Forwarded
	}
	e.lane.flight.Report(e, how)
}

// take registers a delivery and sends it on its way.
func (l *lane) take(d amqp.Delivery, now time.Time) {
	e := l.slab.entry(&d)
	e.lane, e.tag, e.arrived, e.again = l, d.DeliveryTag, now, d.Redelivered
	raw, unread := unreadable(&d)
	e.rec = record{Delivery: d, unread: unread, raw: raw, marshaler: l.r.client.cfg.Marshaler, entry: e}
	// It is the lane's to ack.
	e.rec.Acknowledger, e.rec.DeliveryTag, e.rec.ConsumerTag = nil, 0, ""
	l.acks.add(e)
	if l.kind == mainQueue {
		if unread != nil { // what is called like ours stands in its raw headers
			maps.DeleteFunc(e.rec.Headers, func(name string, _ any) bool { return strings.HasPrefix(name, redeliver.HeaderPrefix) })
		}
		if l.ordered {
			l.line(e)
			if id := idOf(&e.rec.Delivery); e.again {
				e.state = l.r.client.places.Take(spot{l.queue, id})
				if n, counted := deliveryCount(d.Headers); l.r.client.suspect(n, counted, id) && e.rec.unread == nil {
					e.solo = &solo{e: e}
				}
			}
			l.enqueue(e)
			return
		}
		if n, counted := deliveryCount(d.Headers); unread == nil && e.again && (n >= maxReturns || !counted) {
			l.renewCopy(e, false)
			return
		}
		l.ready.Push(e)
		return
	}
	l.receive(e)
}

// unpack makes the message that the handler gets. What cannot be decoded goes
// to the DLQ as it is; ok is false then.
func (l *lane) unpack(e *entry) (ok bool) {
	e.d = l.delivery(e)
	if l.r.native != nil && e.rec.unread == nil {
		return true // as it is
	}
	msg, err := e.rec.Message()
	if err != nil {
		undecodable := &redeliver.UndecodableError{Err: err}
		l.forward(e, l.r.sub.Decide(e.d.State(), undecodable, time.Now()), undecodable)
		return false
	}
	msg.SetContext(e.d)
	e.msg = msg
	return true
}

// delivery makes an entry's context and what the middlewares need to know.
func (l *lane) delivery(e *entry) *delayqueue.Delivery {
	d := &e.delivery
	d.Sub, d.Record, d.Waited, d.Mover, d.Alone, d.Displaced = l.r.sub, &e.rec, e.state, e, l.kind == suspectQueue || e.solo != nil, l.kind != mainQueue
	if e.state != nil {
		d.ID, d.Source = e.state.ID, e.state.Source
	} else {
		m := &e.rec.Delivery
		d.ID = idOf(m)
		d.Source.Timestamp = m.Timestamp
		d.Expires = expires(m, e.arrived)
		if l.r.sub.Sink != nil {
			if found := strangers(m.Headers); found != nil {
				l.r.sub.Tell(redeliver.HeadersIgnored{Topic: l.queue, ID: d.ID, Findings: found})
			}
		}
		if d.Source.Timestamp.IsZero() && !d.Expires.IsZero() {
			d.Source.Timestamp = e.arrived // the expiration counts from here on
		}
	}
	d.Begin(l.ctx)
	return d
}

// idOf is the id of an entry, wherever it is on its way.
func (l *lane) idOf(e *entry) string {
	if e.state != nil {
		return e.state.ID
	}
	return idOf(&e.rec.Delivery)
}

// nack is the answer of a message that failed without an error: a publisher of
// the Router, another middleware. It is an attempt like an error.
func (l *lane) nack(e *entry) {
	if e.d.Lost() || l.ch.IsClosed() {
		l.end(e, delayqueue.Abandoned)
		return
	}
	dec, cause := l.r.sub.DecideNack(e.d, l.r.client.cfg.NackDelay, time.Now())
	l.forward(e, dec, cause)
}

// forward writes an entry in flight to where dec says, without a handler.
func (l *lane) forward(e *entry, dec *redeliver.Decision, cause error) {
	go func() { e.Moved(l.r.sub.Forward(e.d, dec, cause) == nil) }()
}

// pass moves an entry on that no handler is to see now: to a shorter level, to
// the suspects, or, a delayed publish that is due, to its exchange.
func (l *lane) pass(e *entry) {
	e.rest()
	e.d = l.delivery(e)
	sub, st := l.r.sub, e.d.State()
	if e.then == toDLQ {
		crashed := &redeliver.CrashedError{Times: e.times}
		l.forward(e, sub.Decide(st, crashed, time.Now()), crashed)
		return
	}
	go func() {
		dec := &redeliver.Decision{Action: redeliver.RetryLater, State: st}
		where, err := sub.PersistDecision(e.d, dec, func(ctx context.Context) (string, error) { return l.r.move(ctx, e, &st) })
		switch {
		case err != nil:
		case dec.Action == redeliver.DeadLetter:
			sub.Tell(redeliver.DeadLettered{State: dec.State, Where: where, Err: redeliver.ErrUnschedulable})
		case e.then == toOrigin:
			sub.Tell(redeliver.Published{State: st, Topic: where})
		default:
			sub.Tell(redeliver.Hopped{State: st, From: l.queue, To: where})
		}
		e.Moved(err == nil)
	}()
}

// move writes an entry to where it goes next.
func (r *reader) move(ctx context.Context, e *entry, st *redeliver.State) (string, error) {
	switch e.then {
	case toOrigin:
		return r.fwd.publish(ctx, e.d, r.client.published)
	case toRetry:
		e.rec.copies = e.copies + 1
		return r.fwd.anew(ctx, e.d, st)
	case toSuspects:
		return r.fwd.suspect(ctx, e.d, st)
	default:
		e.rec.copies = e.copies
		return r.fwd.hop(ctx, e.d, st)
	}
}

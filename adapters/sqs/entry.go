package sqs

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// entry is one delivery of a message on its way through a lane. A message that
// waits in hand has one after another, under the same ticket.
type entry struct {
	delayqueue.Seat

	lane    *lane
	ticket  *ticket
	rec     record
	arrived time.Time
	then    then
	until   time.Time // it waits here until then
	times   int       // a suspect's crashes
	inPlace bool      // its state is in this process's memory alone
	busy    atomic.Bool
	unrun   atomic.Bool                     // no handler has taken it, and none will
	stays   atomic.Pointer[redeliver.State] // how it waits in hand, once that is sure

	attempt delayqueue.Attempt // of a handler of SQS's own messages
	batched *BatchMessage      // of one that takes many at a time

	state    *redeliver.State     // what it brought
	d        *delayqueue.Delivery // delivery, once it leaves for the handler
	delivery delayqueue.Delivery
	msg      *message.Message // nil with a handler of SQS's own messages
}

// then is what is to be done with an entry.
type then uint8

const (
	toHandler  then = iota
	toWait          // hop: another copy waits for the next 15 minutes
	toSuspects      // it may have killed its process
	toDLQ           // it has, too often
)

// Delivery implements [delayqueue.Flyer].
func (e *entry) Delivery() *delayqueue.Delivery { return e.d }

// Handed implements [delayqueue.Flyer].
func (e *entry) Handed() *message.Message { return e.msg }

// class says with whom an entry shares its slots.
func (e *entry) class() int {
	if e.state != nil && e.state.Attempts > 0 {
		return retried
	}
	return fresh
}

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

// take registers a message and sends it on its way.
func (l *lane) take(m *types.Message, at time.Time, hidden time.Duration) {
	p := l.slab.place()
	if t := l.tickets[aws.ToString(m.MessageId)]; t != nil {
		// It came again while we have it: with the new receipt we keep it.
		t.renew(m, at, hidden)
		l.r.client.turn.Known.Add(t.id)
		return
	}
	fresh, e := &p.ticket, &p.entry
	fresh.init(l.ctx, m, at, hidden, l.queue)
	e.lane, e.ticket, e.arrived = l, fresh, at
	fresh.entry = e
	l.tickets[fresh.id] = fresh
	l.groups.hold(fresh.group)
	fresh.bytes = sizeOf(m) // before it is taken apart
	e.read(m)
	l.bytes += fresh.bytes
	if l.enter(fresh) {
		l.admit(e)
	}
}

// admit sends an entry on its way: the first of its group.
func (l *lane) admit(e *entry) {
	if l.stopping { // see arrive, and acquit
		return
	}
	if e.until.After(time.Now()) {
		if !l.wait(e, e.until) {
			return
		}
		if e.inPlace { // as before it came again
			e.ticket.keep(e.state.Due)
			l.beat(e.ticket)
		}
		return
	}
	l.ready[e.class()].Push(e)
}

// unpack makes the message that the handler gets. What cannot be decoded goes
// to the DLQ as it is; ok is false then.
func (l *lane) unpack(e *entry) (ok bool) {
	e.d = l.delivery(e)
	if l.r.consumer != nil {
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
	d.Sub, d.Record, d.Waited, d.Mover, d.Alone = l.r.sub, &e.rec, e.state, e, l.kind == suspectQueue
	if e.state != nil {
		d.ID, d.Source = e.state.ID, e.state.Source
	} else {
		d.ID = idOf(&e.rec.native)
		d.Source.Timestamp = sent(&e.rec.native)
		if l.r.sub.Sink != nil {
			if found := strangers(&e.rec.native); found != nil {
				l.r.sub.Tell(redeliver.HeadersIgnored{Topic: l.queue.name, ID: d.ID, Findings: found})
			}
		}
	}
	d.Begin(e.ticket)
	return d
}

// nack is the answer of a message that failed without an error: a publisher of
// the Router, another middleware. It is an attempt like an error.
func (l *lane) nack(e *entry) {
	if e.d.Lost() {
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

// pass moves an entry on that no handler is to see now: it waits further, is a
// suspect, or has crashed too often.
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
		var buried *redeliver.Decision // what no queue takes for good
		where, err := sub.Persist(e.d, &st, func(ctx context.Context) (string, error) {
			buried = nil // of a try before
			where, err := l.r.move(ctx, e, &st)
			if !errors.Is(err, delayqueue.ErrRefused) && !errors.Is(err, redeliver.ErrUnschedulable) {
				return where, err
			}
			buried = &redeliver.Decision{State: st}
			sub.Policy.Unschedulable(buried, err)
			return l.r.fwd.DeadLetter(ctx, e.d, &buried.State)
		})
		switch {
		case err != nil:
		case buried != nil:
			sub.Tell(redeliver.DeadLettered{State: buried.State, Where: where, Err: redeliver.ErrUnschedulable})
		default:
			sub.Tell(redeliver.Hopped{State: st, From: l.queue.name, To: where})
		}
		e.Moved(err == nil)
	}()
}

// move writes an entry to where it goes next.
func (r *reader) move(ctx context.Context, e *entry, st *redeliver.State) (string, error) {
	if e.then == toSuspects {
		return r.fwd.suspect(ctx, e.d, st)
	}
	return r.fwd.Schedule(ctx, e.d, st)
}

func answered(msg *message.Message) bool {
	select {
	case <-msg.Acked():
		return true
	case <-msg.Nacked():
		return true
	default:
		return false
	}
}

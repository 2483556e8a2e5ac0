package amqp

import (
	"context"
	"errors"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// native stands behind a reader in the place of a channel of Watermill messages:
// a handler of the client's own deliveries, and those who call it. The lanes are
// the same.
type native struct {
	handle  func(context.Context, amqp.Delivery) error
	workers *delayqueue.Workers[*entry]
	batches *delayqueue.BatchWorkers // in the place of both, where deliveries are handled many at a time
}

func newNative(handle func(context.Context, amqp.Delivery) error) *native {
	return &native{handle: handle, workers: delayqueue.NewWorkers((*entry).work)}
}

// give has a delivery handled soon, whose entry has a slot.
func (n *native) give(e *entry) {
	if n.batches != nil {
		e.batched = e.lane.slab.place()
		e.batched.begin(e)
		n.batches.Give(&e.batched.place, e.d, e, len(e.rec.Delivery.Body))
		return
	}
	n.workers.Give(e)
}

// close lets the goroutines end that have nothing to do.
func (n *native) close() {
	if n.batches != nil {
		n.batches.Close()
		return
	}
	n.workers.Close()
}

// work is what a worker does with an entry.
func (e *entry) work() {
	if how, ended := delayqueue.Work(&e.attempt, e.d, e); ended {
		e.lane.flight.Report(e, how)
	}
}

// Handle implements [delayqueue.Task].
func (e *entry) Handle(a *delayqueue.Attempt) error {
	says := &e.says
	if a != &e.attempt { // a try in place: the one before may still be answered
		says = new(acker)
	}
	d := e.rec.Delivery
	d.Acknowledger, d.DeliveryTag, d.ConsumerTag = says, e.tag, consumerTag
	err := e.lane.r.native.handle(a, d)
	if said := says.said.Load(); err == nil && said != nothing {
		return e.nacked(said == requeued)
	}
	return err
}

// nacked is the answer of a handler that has nacked its delivery, or rejected it.
func (e *entry) nacked(requeue bool) error {
	switch delay := e.lane.r.client.cfg.NackDelay; {
	case !requeue:
		return redeliver.Reject("by the handler, without requeue")
	case delay > 0:
		return redeliver.RetryAfter(redeliver.ErrNacked, delay)
	default:
		return redeliver.ErrNacked
	}
}

// Describe implements [delayqueue.Task].
func (e *entry) Describe() (redeliver.Headers, []byte) { return &e.rec, e.rec.Delivery.Body }

// Answered implements [delayqueue.Task]: what a handler does to the delivery is
// part of its answer, and no end of it.
func (e *entry) Answered() bool { return false }

// Expired implements [delayqueue.Task].
func (e *entry) Expired(err error) error { return err }

// Settle implements [delayqueue.Task].
func (e *entry) Settle(acked bool) {
	if !acked { // otherwise it has moved on, see Moved
		e.lane.flight.Report(e, delayqueue.Abandoned)
	}
}

// What a handler said of its delivery by the delivery's own methods.
const (
	nothing  uint32 = iota // or that it is acked, which it is when the handler returns nil
	requeued               // nacked or rejected, to be tried again
	dropped                // the same, not to be tried again
)

// acker stands behind the delivery that a handler gets: those that were written
// for a loop of their own may go on to ack and nack. It speaks for one attempt.
type acker struct{ said atomic.Uint32 }

var errMultiple = errors.New("amqp: a handler answers for its own message alone: multiple must be false")

// Ack implements [amqp.Acknowledger].
func (a *acker) Ack(_ uint64, multiple bool) error { return a.say(nothing, multiple) }

// Nack implements [amqp.Acknowledger].
func (a *acker) Nack(tag uint64, multiple, requeue bool) error {
	if multiple {
		return errMultiple
	}
	return a.Reject(tag, requeue)
}

// Reject implements [amqp.Acknowledger].
func (a *acker) Reject(_ uint64, requeue bool) error {
	if requeue {
		return a.say(requeued, false)
	}
	return a.say(dropped, false)
}

func (a *acker) say(what uint32, multiple bool) error {
	if multiple {
		return errMultiple
	}
	if what != nothing {
		a.said.CompareAndSwap(nothing, what) // the first counts
	}
	return nil
}

// Get is a header as text; "" where there is none.
func (r *record) Get(name string) string {
	text, _ := textOf(r.Headers[name])
	return text
}

package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// forwarder writes the messages of one subscription to where they wait and to
// the DLQ, all through the default exchange: to a queue by its name, so that
// nothing else that is bound somewhere gets a copy. It implements
// delayqueue.Scheduler and delayqueue.DeadLetters.
type forwarder struct {
	sender  *sender
	layout  *layout
	declare func(context.Context) error // the layout's queues, when one was deleted
	next    atomic.Uint32               // shard
}

// place is the queue on which a message waits from now until due, and when it
// leaves that, if it is read and the level is over before. A wait that is too
// short for a level is held by the reader of the retry queue.
func (f *forwarder) place(due, now time.Time) (queue string, until time.Time) {
	l, left := f.layout, due.Sub(now)
	level, ok := l.ladder.Next(left, slack)
	if !ok {
		return l.retry(), until
	}
	if level <= readMost && l.hops(left, level) {
		until = now.Add(level)
	}
	return l.names.delay(l.queue, level, int(f.next.Add(1))%l.shards), until
}

// Schedule implements [delayqueue.Scheduler].
func (f *forwarder) Schedule(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	queue, until := f.place(st.Due, time.Now())
	return f.write(ctx, queue, d, st, until, spare)
}

// hop writes a waiting message to the next place where it waits.
func (f *forwarder) hop(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	hopping := *st
	hopping.Policy = f.layout.fingerprint // the level is one of this ladder now
	return f.Schedule(ctx, d, &hopping)
}

// anew writes a message to the way back, as it is. It runs some time later, when the
// broker has the ack of the original: a message that kills its process would leave both
// each time.
func (f *forwarder) anew(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	again := *st
	again.Due = redeliver.CeilMilli(time.Now().Add(restsBefore).UTC())
	return f.write(ctx, f.layout.retry(), d, &again, time.Time{}, spare)
}

// restsBefore is how long a message rests that was written anew.
const restsBefore = time.Second

// suspect moves a message to the queue where suspects run one at a time.
func (f *forwarder) suspect(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	return f.write(ctx, f.layout.suspects(), d, st, time.Time{}, counted)
}

// DeadLetter implements [delayqueue.DeadLetters].
func (f *forwarder) DeadLetter(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	if rec, err := recordOf(d); err == nil && st.Truncated != "" && rec.entry.maxBody > 0 {
		return f.deadInParts(ctx, rec, st)
	}
	return f.write(ctx, f.layout.dlq(), d, st, time.Time{}, 0)
}

// deadInParts writes a message to the DLQ that is too large for the broker: in as many
// parts as it needs, each with a part of the body and with all headers. Rejecting the
// original instead would lose it, unless its queue dead-letters, which a policy can end.
func (f *forwarder) deadInParts(ctx context.Context, rec *record, st *redeliver.State) (string, error) {
	queue, e, body := f.layout.dlq(), rec.entry, rec.Delivery.Body
	e.rest()
	for n := max(1, (len(body)+e.maxBody-1)/e.maxBody); e.parts < n; e.parts++ {
		if where, err := e.resume(ctx); err != nil {
			return where, err
		} else if where != "" {
			continue // this part was written after all
		}
		part := *rec
		part.Delivery.Body = body[e.parts*e.maxBody : min(len(body), (e.parts+1)*e.maxBody)]
		part.part = fmt.Sprintf("%d/%d", e.parts+1, n)
		if err := f.send(ctx, e, queue, part.dead(st, f.sender.link.frameMax())); err != nil {
			return queue, err
		}
	}
	return queue, nil
}

// publish writes a delayed publish to its exchange at last, as its publisher made it.
func (f *forwarder) publish(ctx context.Context, d *delayqueue.Delivery, through *sender) (string, error) {
	rec, err := recordOf(d)
	if err != nil {
		return f.layout.queue, err
	}
	if where, err := rec.entry.resume(ctx); where != "" {
		return where, err
	}
	rec.entry.unsure, err = through.send(ctx, rec.Exchange, rec.RoutingKey, plain(&rec.Delivery))
	if gone(err) { // the exchange was deleted under us
		if err := f.declare(ctx); err != nil {
			return place(rec.Exchange, rec.RoutingKey), err
		}
		rec.entry.unsure, err = through.send(ctx, rec.Exchange, rec.RoutingKey, plain(&rec.Delivery))
	}
	return place(rec.Exchange, rec.RoutingKey), err
}

// write publishes a record to a queue of ours. One whose headers leave no room
// for ours is refused on a level; the DLQ takes it with as many of ours as fit. A
// try that nobody answered is waited for, not repeated. It returns the queue.
func (f *forwarder) write(ctx context.Context, queue string, d *delayqueue.Delivery, st *redeliver.State, until time.Time, room int) (string, error) {
	rec, err := recordOf(d)
	if err != nil {
		return queue, err
	}
	e := rec.entry
	e.rest()
	if where, err := e.resume(ctx); where != "" {
		return where, err
	}
	frame := f.sender.link.frameMax()
	var p amqp.Publishing
	if queue == f.layout.dlq() {
		p = rec.dead(st, frame)
	} else if p, err = rec.waiting(st, until, frame, room); err != nil {
		return queue, err
	}
	return queue, f.send(ctx, e, queue, p)
}

// send publishes to a queue of ours, and declares the queues once more if it was deleted.
func (f *forwarder) send(ctx context.Context, e *entry, queue string, p amqp.Publishing) (err error) {
	e.unsure, err = f.sender.send(ctx, "", queue, p)
	if errors.Is(err, errNoQueue) { // it was deleted under us
		if err := f.declare(ctx); err != nil {
			return err
		}
		e.unsure, err = f.sender.send(ctx, "", queue, p)
	}
	if n := maxBodyOf(err); refuses(err) && n != e.maxBody {
		e.maxBody, e.parts = n, 0
	}
	return err
}

// resume waits for the answer of a try that had none in its time, and says where
// it went: nowhere when there is no such try, or when it failed after all.
func (e *entry) resume(ctx context.Context) (where string, err error) {
	if e.unsure == nil {
		return "", nil
	}
	err = e.unsure.wait(ctx)
	if err != nil && !errors.Is(err, errUnsure) {
		e.unsure = nil
		return "", nil
	}
	return e.unsure.where(), err
}

func recordOf(d *delayqueue.Delivery) (*record, error) {
	rec, ok := d.Record.(*record)
	if !ok {
		return nil, fmt.Errorf("amqp: message %s was delivered by another adapter (%T)", d.ID, d.Record)
	}
	return rec, nil
}

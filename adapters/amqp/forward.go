package amqp

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// forwarder writes the messages of one subscription to where they wait and to
// the DLQ, all through the default exchange: to a queue by its name, so that
// nothing else that is bound somewhere gets a copy. It implements
// delayqueue.Scheduler and delayqueue.DeadLetters.
type forwarder struct {
	sender *sender
	layout *layout
	next   atomic.Uint32 // shard
}

// place is the queue on which a message waits from now until due. A wait that is
// too short for a level is held by the reader of the retry queue.
func (f *forwarder) place(due, now time.Time) string {
	l := f.layout
	level, ok := l.ladder.Next(due.Sub(now), slack)
	if !ok {
		return l.retry()
	}
	return l.names.delay(l.queue, level, int(f.next.Add(1))%l.shards)
}

// Schedule implements [delayqueue.Scheduler].
func (f *forwarder) Schedule(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	queue := f.place(st.Due, time.Now())
	return queue, f.write(ctx, queue, d, st, spare)
}

// hop writes a waiting message to the next place where it waits.
func (f *forwarder) hop(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	hopping := *st
	hopping.Policy = f.layout.fingerprint // the level is one of this ladder now
	return f.Schedule(ctx, d, &hopping)
}

// suspect moves a message to the queue where suspects run one at a time.
func (f *forwarder) suspect(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	queue := f.layout.suspects()
	return queue, f.write(ctx, queue, d, st, 0)
}

// DeadLetter implements [delayqueue.DeadLetters].
func (f *forwarder) DeadLetter(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	queue := f.layout.dlq()
	return queue, f.write(ctx, queue, d, st, 0)
}

// publish writes a delayed publish to its exchange at last, as its publisher made it.
func (f *forwarder) publish(ctx context.Context, d *delayqueue.Delivery, through *sender) (string, error) {
	rec, err := recordOf(d)
	if err != nil {
		return f.layout.queue, err
	}
	return place(rec.Exchange, rec.RoutingKey), through.send(ctx, rec.Exchange, rec.RoutingKey, plain(&rec.Delivery))
}

// write publishes a record to a queue of ours. One whose headers leave no room
// for ours is refused on a level; the DLQ takes it with as many of ours as fit.
func (f *forwarder) write(ctx context.Context, queue string, d *delayqueue.Delivery, st *redeliver.State, room int) error {
	rec, err := recordOf(d)
	if err != nil {
		return err
	}
	p := rec.publishing(st)
	if frame := f.sender.link.frameMax(); !fit(&p, frame, room) {
		if room > 0 {
			return fmt.Errorf("%w: its headers of %d bytes leave no room for redeliver's in a frame of %d", delayqueue.ErrRefused, headerSize(&p), frame)
		}
		if p = rec.publishing(nil); !fit(&p, frame, room) {
			return fmt.Errorf("%w: its headers of %d bytes do not fit into a frame of %d", delayqueue.ErrRefused, headerSize(&p), frame)
		}
	}
	return f.sender.send(ctx, "", queue, p)
}

func recordOf(d *delayqueue.Delivery) (*record, error) {
	rec, ok := d.Record.(*record)
	if !ok {
		return nil, fmt.Errorf("amqp: message %s was delivered by another adapter (%T)", d.ID, d.Record)
	}
	return rec, nil
}

package sqs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// maxDelay is SQS's own for one message.
const maxDelay = 900 * time.Second

// forwarder writes the messages of one subscription to where they wait and to the
// DLQ. It implements delayqueue.Scheduler and delayqueue.DeadLetters.
type forwarder struct {
	client *Client
	layout *layout
}

// Schedule implements [delayqueue.Scheduler]. On a standard queue the copy waits,
// on a FIFO queue the message itself does, in hand, and so does one that leaves no
// room for our state.
func (f *forwarder) Schedule(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	l := f.layout
	rec, err := recordOf(d)
	if err != nil {
		return l.main.name, err
	}
	e := rec.entry
	e.rest()
	own := e.lane.kind == mainQueue
	if own && l.main.fifo {
		return l.main.name, f.inHand(ctx, e, st)
	}
	o, ok := rec.waiting(st, l.main.limit)
	switch {
	case !ok && own:
		return l.main.name, f.inHand(ctx, e, st)
	case !ok:
		return l.main.name, fmt.Errorf("%w: its body and attributes leave no room for redeliver's state in the %d bytes of %s", delayqueue.ErrRefused, l.main.limit, l.main.name)
	}
	o.moved = true
	if l.main.fifo {
		o.dedup = unique("retry", rec, st)
	} else {
		o.delay = delaySeconds(time.Until(st.Due))
	}
	return l.main.name, f.send(ctx, l.main, o)
}

// delaySeconds is how long a copy waits: not longer than what is left, whose last
// part of a second is held by whoever receives it.
func delaySeconds(left time.Duration) int32 {
	return int32(min(max(left, 0), maxDelay) / time.Second)
}

// inHand keeps a message until it is due: hidden from others, under the receipt
// that we have.
func (f *forwarder) inHand(ctx context.Context, e *entry, st *redeliver.State) error {
	t := e.ticket
	now := time.Now()
	if most := t.limit(); st.Due.After(most.Add(-e.lane.r.client.cfg.VisibilityTimeout)) {
		return &redeliver.UnschedulableError{Wait: st.Due.Sub(now), Max: max(0, most.Sub(now))}
	}
	if err := e.lane.hider.hide(ctx, t, st.Due); err != nil {
		if stale(err) { // others may have it
			select {
			case e.lane.beaten <- beaten{t, err}:
			case <-e.lane.ctx.Done():
			}
		}
		return errorOf("hiding a message of", f.layout.main.name, err)
	}
	kept := *st
	e.stays.Store(&kept)
	return nil
}

// suspect moves a message to the queue where suspects run one at a time. One that
// leaves no room for our state goes without.
func (f *forwarder) suspect(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	q := f.layout.suspects
	rec, err := recordOf(d)
	if err != nil {
		return q.name, err
	}
	o, ok := rec.waiting(st, q.limit)
	if !ok {
		o = rec.plain()
	}
	o.moved = true
	if q.fifo {
		o.dedup = unique("suspect", rec, st)
	}
	return q.name, f.send(ctx, q, o)
}

// DeadLetter implements [delayqueue.DeadLetters].
func (f *forwarder) DeadLetter(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	q := f.layout.dlq
	rec, err := recordOf(d)
	if err != nil {
		return q.name, err
	}
	rec.entry.rest()
	if st.Truncated != "" {
		return q.name, f.deadInParts(ctx, rec, st)
	}
	o := rec.dead(st, q.limit)
	o.moved = true
	if q.fifo {
		o.dedup = unique("dead", rec, st)
	}
	return q.name, f.send(ctx, q, o)
}

// deadInParts writes a message to the DLQ that the DLQ has refused: SQS keeps no
// original, so a stub would lose it. The parts are half as large each time they are
// refused, because the DLQ's limit is another one than at start.
func (f *forwarder) deadInParts(ctx context.Context, rec *record, st *redeliver.State) error {
	if rec.partSize == 0 {
		rec.partSize = max(minMessageSize, f.layout.dlq.limit/2)
	}
	for {
		err := f.writeParts(ctx, rec, st)
		if !errors.Is(err, delayqueue.ErrRefused) || rec.partSize == minMessageSize {
			return err
		}
		rec.partSize, rec.parts = max(minMessageSize, rec.partSize/2), 0
	}
}

func (f *forwarder) writeParts(ctx context.Context, rec *record, st *redeliver.State) error {
	all := rec.deadInParts(st, rec.partSize)
	for ; rec.parts < len(all); rec.parts++ {
		o := all[rec.parts]
		o.moved = true
		if f.layout.dlq.fifo {
			o.dedup = unique(fmt.Sprintf("dead-%d-%d", rec.partSize, rec.parts), rec, st)
		}
		if err := f.send(ctx, f.layout.dlq, o); err != nil {
			return err
		}
	}
	return nil
}

// send writes a message to a queue of ours.
func (f *forwarder) send(ctx context.Context, q *queue, o outgoing) error {
	err := f.client.sender(q, moveLinger).send(ctx, o)
	if noQueue(err) { // it was deleted under us
		if err := f.client.provision(ctx, f.layout); err != nil {
			return err
		}
		err = f.client.sender(q, moveLinger).send(ctx, o)
	}
	return err
}

func recordOf(d *delayqueue.Delivery) (*record, error) {
	rec, ok := d.Record.(*record)
	if !ok {
		return nil, fmt.Errorf("sqs: message %s was delivered by another adapter (%T)", d.ID, d.Record)
	}
	return rec, nil
}

package pubsub

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// wait holds the message that heads a delay topic until its time there is over,
// and writes it to where it goes then, or, where that refuses it for good, to the DLQ.
// It tells whether it is settled. Those behind it wait for it, and lose nothing: what
// is written to one delay topic has its time in the order of the writes, but for a rest
// that no level fits.
func (l *lane) wait(ctx context.Context, raw *message.Message) bool {
	lay := l.r.layout
	rec, stay, publish := l.waiting(raw)
	st := stay.State
	e := l.r.newEntry(raw, rec, st)
	defer e.end()
	// An older policy has put it here, or nobody of ours: it moves to its own place
	// and holds up nobody.
	if stays := time.Until(stay.Until); stays <= lay.stay(l.nth)+slack && !e.sleep(ctx, stay.Until) {
		return false
	}
	return l.move(e, rec, st, publish)
}

// move writes a message to where it goes next, or, where that refuses it for good, to
// the DLQ. It tells whether it is settled.
func (l *lane) move(e *entry, rec *record, st *redeliver.State, publish bool) bool {
	lay, sub := l.r.layout, l.r.sub
	var where string
	var buried *redeliver.Decision // where the next place refuses it for good
	ok := e.until(func() (err error) {
		where, err = sub.Persist(e.d, st, func(ctx context.Context) (string, error) {
			if buried == nil {
				where, err := l.r.fwd.wait(ctx, rec, st, publish)
				if !errors.Is(err, delayqueue.ErrRefused) {
					return where, err
				}
				buried = &redeliver.Decision{State: *st}
				sub.Policy.Unschedulable(buried, err)
			}
			return l.r.fwd.DeadLetter(ctx, e.d, &buried.State)
		})
		return err
	})
	switch {
	case !ok:
	case buried != nil:
		sub.Tell(redeliver.DeadLettered{State: buried.State, Where: where, Err: redeliver.ErrUnschedulable})
	case where == lay.topic:
		sub.Tell(redeliver.Published{State: *st, Topic: where})
	case where != lay.back:
		sub.Tell(redeliver.Hopped{State: *st, From: l.topic, To: where})
	}
	return ok
}

// waiting reads a message that waits, and believes what can be right. It is written
// anew when it goes on, so what is wrong with it is told here.
func (l *lane) waiting(raw *message.Message) (rec *record, stay delayqueue.Stay, publish bool) {
	lay, now := l.r.layout, time.Now()
	rec, c := newRecord(raw, true, l.r.client.cfg.Decode)
	a := delayqueue.Arrival{Group: lay.group, Origin: lay.topic, Ladder: lay.ladder, Written: now, Now: now} // nothing says when it was written
	var headers []redeliver.Header
	if c != nil {
		headers, a.Leaves = c.headers, c.until
	}
	a.Level = lay.level(l.nth, a.Leaves.Sub(now))
	stay = delayqueue.Arrive(&a, headers, rec.id)
	if len(stay.Findings) > 0 {
		l.r.sub.Tell(redeliver.HeadersIgnored{Topic: l.topic, ID: stay.State.ID, Findings: stay.Findings})
	}
	l.r.sub.Met(stay.State)
	stay.State.Policy = lay.print // it goes on by this one's levels
	return rec, stay, c != nil && c.publish && stay.Publish
}

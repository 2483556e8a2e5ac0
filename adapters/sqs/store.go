package sqs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// store writes the messages of one subscription back to its queue, to the suspects and to the DLQ. It implements
// driver.Store.
type store struct {
	client *client
	layout *layout
}

var _ driver.Store[*delivery] = (*store)(nil)

// Write implements [driver.Store].
func (t *store) Write(ctx context.Context, to driver.Place, m *driver.Message[*delivery], st *redeliver.State, done driver.Done) {
	d := m.Record
	d.signalAnswered() // the copy may wait for the end of an outage
	var q *api.Queue
	var o wire.Outgoing
	switch to {
	case driver.PlaceDLQ:
		q = t.layout.dlq
		if st.Truncated != "" {
			go func() { done.Confirmed(q.Name, t.writeInParts(ctx, d, st)) }()
			return
		}
		o = d.DeadCopy(st, q.MaxSize)
		o.DedupID = wire.MoveDedupID("dead", &d.Record, st)
	case driver.PlaceSuspects:
		q, o = t.suspectCopy(d, st)
	default: // there are no delay queues: the message waits in the queue itself
		main := !d.source.readsSuspects()
		if main && d.source.queue.FIFO {
			t.hideUntilDue(m, st, done)
			return
		}
		var ok bool
		q = t.layout.main
		switch o, ok = t.waitingCopy(d, st); {
		case !ok && main:
			t.hideUntilDue(m, st, done)
			return
		case !ok:
			done.Confirmed(q.Name, fmt.Errorf("%w: its body and attributes leave no room for redeliver's state in the %d bytes of %s", driver.ErrRefused, q.MaxSize, q.Name))
			return
		}
	}
	t.postCreating(ctx, q, o, func(err error) {
		if err == nil && to == driver.PlaceSuspects {
			d.source.removeSuspect(d, func() { done.Confirmed(q.Name, nil) })
			return
		}
		done.Confirmed(q.Name, err)
	})
}

// Truncates implements [driver.Truncating]. A message that the DLQ refuses goes there in parts.
func (t *store) Truncates() bool { return true }

// writeInParts writes, in parts, a message that the DLQ refused as a whole. SQS keeps no original, so a stub would lose
// the message. Each refusal halves the parts, because the DLQ's limit has changed since the start. If the DLQ refuses
// the smallest, too, writeInParts leaves out the message's attributes, because SQS may refuse one of them.
func (t *store) writeInParts(ctx context.Context, d *delivery, st *redeliver.State) error {
	if d.partSize == 0 {
		d.partSize = max(wire.MinMessageSize, t.layout.dlq.MaxSize/2)
	}
	for {
		err := t.writeParts(ctx, d, st)
		switch {
		case !errors.Is(err, driver.ErrRefused), d.bare:
			return err
		case d.partSize == wire.MinMessageSize:
			d.bare = true
		}
		d.partSize, d.partsWritten = max(wire.MinMessageSize, d.partSize/2), 0
	}
}

func (t *store) writeParts(ctx context.Context, d *delivery, st *redeliver.State) error {
	all := d.DeadParts(st, d.partSize, d.bare)
	for ; d.partsWritten < len(all); d.partsWritten++ {
		o := all[d.partsWritten]
		o.DedupID = wire.MoveDedupID(fmt.Sprintf("dead-%d-%d", d.partSize, d.partsWritten), &d.Record, st)
		written := make(chan error, 1)
		t.postCreating(ctx, t.layout.dlq, o, func(err error) { written <- err })
		if err := <-written; err != nil {
			return err
		}
	}
	return nil
}

// waitingCopy returns the copy that waits in the queue. ok is false if the message leaves no room for the state.
func (t *store) waitingCopy(d *delivery, st *redeliver.State) (o wire.Outgoing, ok bool) {
	q, compose, minDelay := t.layout.main, d.WaitingCopy, int32(0)
	if d.rewrite {
		if st.Due.IsZero() {
			own := *st
			own.Due = limits.CeilMilli(time.Now().UTC())
			st = &own
		}
		// A message that kills its process at once would otherwise leave original and copy each time.
		compose, minDelay = d.RewrittenCopy, 1
	}
	o, ok = compose(st, q.MaxSize)
	o.DedupID = wire.MoveDedupID("retry", &d.Record, st)
	if !q.FIFO {
		o.Delay = max(minDelay, delaySeconds(q, time.Until(st.Due)))
	}
	return o, ok
}

// delaySeconds returns the DelaySeconds of a copy in q. It rounds down, and the receiver holds the message for the rest,
// or writes the next copy.
func delaySeconds(q *api.Queue, left time.Duration) int32 {
	return int32(min(max(left, 0), q.MaxDelay()) / time.Second)
}

// suspectCopy returns the copy for the queue of suspects. It has no state if there is no room for it.
func (t *store) suspectCopy(d *delivery, st *redeliver.State) (*api.Queue, wire.Outgoing) {
	q := t.layout.suspects
	o, ok := d.WaitingCopy(st, q.MaxSize)
	if !ok {
		o = d.PlainCopy()
	}
	o.DedupID = wire.MoveDedupID("suspect", &d.Record, st)
	return q, o
}

// postCreating writes a message to one of redeliver's queues. If the queue was deleted, it is created again first.
func (t *store) postCreating(ctx context.Context, q *api.Queue, o wire.Outgoing, done func(error)) {
	t.client.sender(q, api.MoveLinger).Send(ctx, o, func(err error) {
		if !api.IsMissingQueue(err) {
			done(err)
			return
		}
		go func() {
			if err := t.client.provision(ctx, t.layout); err != nil {
				done(err)
				return
			}
			t.client.sender(q, api.MoveLinger).Send(ctx, o, done)
		}()
	})
}

// hideUntilDue keeps a message hidden under its current receipt until it is due. Its note comes first, so that no other process
// begins an attempt without the ones before. A process may die between two of these steps:
//
//	the attempt has ended, the note is not written    the attempt runs again
//	the note is written, the message is not hidden    the next process finds the note, and waits until the message is due
//	a newer note is written, the older one is there   the one with more attempts counts; a process that has both deletes the older one
//	the message is deleted, its note is not           the note is deleted when the message would have expired
//	                                                  (no other message has its MessageId)
//
// If the note cannot be written, the process counts the attempts in memory, and reports that.
func (t *store) hideUntilDue(m *driver.Message[*delivery], st *redeliver.State, done driver.Done) {
	d, name, now := m.Record, t.layout.main.Name, time.Now()
	if maxHidden := d.maxHiddenUntil(); st.Due.After(maxHidden.Add(-t.client.cfg.VisibilityTimeout)) {
		done.Confirmed(name, &redeliver.UnschedulableError{Wait: st.Due.Sub(now), Max: max(0, maxHidden.Sub(now))})
		return
	}
	kept := *st
	if d.source.notes == nil {
		t.hide(d, &kept, done)
		return
	}
	d.source.notes.Write(d.id, &kept, func(err error) {
		d.source.r.reportInMemory(err)
		d.source.mu.Lock()
		d.keptState = &kept // if the message is lost now, this attempt has ended
		d.source.mu.Unlock()
		t.hide(d, &kept, done)
	})
}

// hide hides a message until it is due.
func (t *store) hide(d *delivery, st *redeliver.State, done driver.Done) {
	name := t.layout.main.Name
	d.source.visibilityChanger.hideUntil(&d.visibility, st.Due, func(err error) {
		switch {
		case err == nil:
			d.source.keepState(d, st)
			done.Confirmed(name, driver.ErrStay)
		case api.IsStaleReceipt(err): // others may have it
			d.source.dropLost(d, func() { done.Confirmed(name, api.ErrorOf("hiding a message of", name, err)) })
		default:
			done.Confirmed(name, api.ErrorOf("hiding a message of", name, err))
		}
	})
}

// keepState stores the state of a message that waits hidden, and keeps the messages behind it hidden for as long.
func (s *source) keepState(d *delivery, st *redeliver.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.gone {
		return
	}
	d.keptState = st
	if d.group == "" {
		return
	}
	for _, behind := range s.lines[d.group] {
		behind.visibility.keepUntil(st.Due)
	}
}

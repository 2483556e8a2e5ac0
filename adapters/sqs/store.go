package sqs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// maxDelay is SQS's limit for one message.
const maxDelay = 900 * time.Second

// store writes the messages of one subscription back to its queue, to the suspects and to the DLQ. It implements
// driver.Store.
type store struct {
	client *Client
	layout *layout
}

var _ driver.Store[*delivery] = (*store)(nil)

// Write implements [driver.Store].
func (t *store) Write(ctx context.Context, to driver.Place, m *driver.Message[*delivery], st *redeliver.State, done driver.Done) {
	d := m.Record
	d.signalAnswered() // the copy may wait for the end of an outage
	var q *queue
	var o outgoing
	switch to {
	case driver.DLQ:
		q = t.layout.dlq
		if st.Truncated != "" {
			go func() { done.Confirmed(q.name, t.writeInParts(ctx, d, st)) }()
			return
		}
		o = d.deadCopy(st, q.maxSize)
		o.dedup = t.deduplicationID(q, "dead", d, st)
	case driver.Suspects:
		q, o = t.suspectCopy(d, st)
	default: // there are no delay queues: the message waits in the queue itself
		main := d.source.kind == mainQueue
		if main && d.source.queue.fifo {
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
			done.Confirmed(q.name, fmt.Errorf("%w: its body and attributes leave no room for redeliver's state in the %d bytes of %s", driver.ErrRefused, q.maxSize, q.name))
			return
		}
	}
	o.moved = true
	t.postCreating(ctx, q, o, func(err error) {
		if err == nil && to == driver.Suspects {
			d.source.mu.Lock()
			d.suspect = true
			d.source.mu.Unlock()
		}
		done.Confirmed(q.name, err)
	})
}

// Truncates implements [driver.Truncating]. A message that the DLQ refuses goes there in parts.
func (t *store) Truncates() bool { return true }

// writeInParts writes, in parts, a message that the DLQ refused as a whole. SQS keeps no original, so a stub would lose
// the message. Each refusal halves the parts, because the DLQ's limit has changed since the start. If the DLQ refuses
// the smallest, too, writeInParts leaves out the message's attributes, because SQS may refuse one of them.
func (t *store) writeInParts(ctx context.Context, d *delivery, st *redeliver.State) error {
	if d.partSize == 0 {
		d.partSize = max(minMessageSize, t.layout.dlq.maxSize/2)
	}
	for {
		err := t.writeParts(ctx, d, st)
		switch {
		case !errors.Is(err, driver.ErrRefused), d.bare:
			return err
		case d.partSize == minMessageSize:
			d.bare = true
		}
		d.partSize, d.partsWritten = max(minMessageSize, d.partSize/2), 0
	}
}

func (t *store) writeParts(ctx context.Context, d *delivery, st *redeliver.State) error {
	all := d.deadParts(st, d.partSize, d.bare)
	for ; d.partsWritten < len(all); d.partsWritten++ {
		o := all[d.partsWritten]
		o.moved = true
		o.dedup = t.deduplicationID(t.layout.dlq, fmt.Sprintf("dead-%d-%d", d.partSize, d.partsWritten), d, st)
		written := make(chan error, 1)
		t.postCreating(ctx, t.layout.dlq, o, func(err error) { written <- err })
		if err := <-written; err != nil {
			return err
		}
	}
	return nil
}

// deduplicationID returns the deduplication id of a copy, or "" for a standard queue.
func (t *store) deduplicationID(q *queue, what string, d *delivery, st *redeliver.State) string {
	if !q.fifo {
		return ""
	}
	return moveDedupID(what, &d.record, st)
}

// waitingCopy returns the copy that waits in the queue. ok is false if the message leaves no room for the state.
func (t *store) waitingCopy(d *delivery, st *redeliver.State) (o outgoing, ok bool) {
	q := t.layout.main
	if d.rewrite {
		if st.Due.IsZero() {
			own := *st
			own.Due = limits.CeilMilli(time.Now().UTC())
			st = &own
		}
		o, ok = d.rewrittenCopy(st, q.maxSize)
		// A message that kills its process at once would otherwise leave original and copy each time.
		o.delay = max(1, delaySeconds(time.Until(st.Due)))
		return o, ok
	}
	o, ok = d.waitingCopy(st, q.maxSize)
	if q.fifo {
		o.dedup = t.deduplicationID(q, "retry", d, st)
	} else {
		o.delay = delaySeconds(time.Until(st.Due))
	}
	return o, ok
}

// delaySeconds returns the DelaySeconds of a copy. It rounds down, and the receiver holds the message for the rest.
func delaySeconds(left time.Duration) int32 {
	return int32(min(max(left, 0), maxDelay) / time.Second)
}

// suspectCopy returns the copy for the queue of suspects. It has no state if there is no room for it.
func (t *store) suspectCopy(d *delivery, st *redeliver.State) (*queue, outgoing) {
	q := t.layout.suspects
	o, ok := d.waitingCopy(st, q.maxSize)
	if !ok {
		o = d.plainCopy()
	}
	o.moved = true
	o.dedup = t.deduplicationID(q, "suspect", d, st)
	return q, o
}

// postCreating writes a message to one of redeliver's queues. If the queue was deleted, it is created again first.
func (t *store) postCreating(ctx context.Context, q *queue, o outgoing, done func(error)) {
	t.client.sender(q, moveLinger).post(ctx, o, func(err error) {
		if !isMissingQueue(err) {
			done(err)
			return
		}
		go func() {
			if err := t.client.provision(ctx, t.layout); err != nil {
				done(err)
				return
			}
			t.client.sender(q, moveLinger).post(ctx, o, done)
		}()
	})
}

// hideUntilDue keeps a message hidden under its current receipt until it is due.
func (t *store) hideUntilDue(m *driver.Message[*delivery], st *redeliver.State, done driver.Done) {
	d, name, now := m.Record, t.layout.main.name, time.Now()
	if maxHidden := d.maxHiddenUntil(); st.Due.After(maxHidden.Add(-t.client.cfg.VisibilityTimeout)) {
		done.Confirmed(name, &redeliver.UnschedulableError{Wait: st.Due.Sub(now), Max: max(0, maxHidden.Sub(now))})
		return
	}
	kept := *st
	d.source.visibilityChanger.hideUntil(&d.visibility, st.Due, func(err error) {
		switch {
		case err == nil:
			d.source.markKept(d, &kept)
			done.Confirmed(name, driver.ErrStay)
		case isStaleReceipt(err): // others may have it
			d.source.dropLost(d, func() { done.Confirmed(name, errorOf("hiding a message of", name, err)) })
		default:
			done.Confirmed(name, errorOf("hiding a message of", name, err))
		}
	})
}

// markKept stores the state of a message that waits hidden, and keeps the messages behind it hidden for as long.
func (s *source) markKept(d *delivery, st *redeliver.State) {
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

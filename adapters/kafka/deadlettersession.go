package kafka

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
)

// deadSession implements [driver.Session]. Its locks are leases.
type deadSession struct {
	q      *deadQueue
	leases *driver.Leases
	claims bool // it may write

	reach   map[int32]reach // what of the DLQ was seen, for what may be deleted
	trimmed time.Time
	out     deadOut
}

// Begin implements [driver.DLQ].
func (q *deadQueue) Begin(context.Context) (driver.Session, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sessions == nil {
		return nil, errClosed
	}
	s := &deadSession{q: q, reach: make(map[int32]reach), trimmed: time.Now(), leases: driver.NewLeases(q, q.lease, driver.LeaseOptions{})}
	q.sessions[s] = true
	return s, nil
}

// Lock implements [driver.Session].
func (c *deadSession) Lock(ctx context.Context, lock string, h deadletter.Holder) error {
	q := c.q
	there, err := q.look(ctx)
	if err != nil {
		return err
	}
	if q.elsewhere && there[q.info.Back] == nil {
		return fmt.Errorf("kafka: topic %s does not exist, to which the messages of %s are to go back: name one that group %s reads", q.info.Back, q.info.DLQ, q.info.Group)
	}
	if there[q.info.Back] == nil { // nobody would read it
		return fmt.Errorf("kafka: %s, the way back of group %s, does not exist: let the group subscribe to %s first", q.info.Back, q.info.Group, q.info.Origin)
	}
	if err := q.provisionState(there); err != nil {
		return err
	}
	if err := c.leases.Take(ctx, lock, h); err != nil {
		return err
	}
	c.claims = true
	return nil
}

// Remove implements [driver.Session]. Neighbours that are out are one record.
func (c *deadSession) Remove(ctx context.Context, msgs []*deadletter.Message, entries ...driver.Entry) error {
	if err := c.leases.Check(); err != nil {
		return err
	}
	all, err := spansOf(msgs)
	if err != nil {
		return err
	}
	notes := stateEntries(entries)
	for _, s := range all {
		e, err := jsonEntry(placeKey(s.partition, s.From), s.span)
		if err != nil {
			return err
		}
		notes = append(notes, e)
	}
	if err := c.note(ctx, notes); err != nil {
		return err
	}
	c.q.mu.Lock()
	for _, s := range all { // they will be read again, to the same end
		c.q.ledger.out[s.partition] = c.q.ledger.out[s.partition].put(s.span)
	}
	c.q.mu.Unlock()
	if time.Since(c.trimmed) > trimEvery {
		c.trim(ctx)
	}
	return nil
}

// note writes records to the state topic, in order, and returns when all are confirmed.
func (c *deadSession) note(ctx context.Context, notes []stateEntry) error {
	if len(notes) == 0 {
		return nil
	}
	return c.q.c.noteBy(ctx, c.by(ctx, 0), c.q.state.topic, notes...)
}

// spanOf is a span of one partition.
type spanOf struct {
	partition int32
	span
}

func spansOf(msgs []*deadletter.Message) (all []spanOf, err error) {
	places := make([]deadPlace, len(msgs))
	for i, m := range msgs {
		p, ok := m.Native.(deadPlace)
		if !ok {
			return nil, fmt.Errorf("kafka: message %s at %s was read by another adapter (%T)", m.ID, m.Position, m.Native)
		}
		places[i] = p
	}
	slices.SortFunc(places, func(x, y deadPlace) int {
		return cmp.Or(cmp.Compare(x.partition, y.partition), cmp.Compare(x.offset, y.offset))
	})
	for _, p := range places {
		if len(all) > 0 {
			last := &all[len(all)-1]
			if last.partition == p.partition && last.Through+1 == p.from {
				last.Through = p.offset
				last.First, last.Last = min(last.First, p.at), max(last.Last, p.at)
				continue
			}
		}
		all = append(all, spanOf{p.partition, span{From: p.from, Through: p.offset, First: p.at, Last: p.at, Outcome: deadletter.Replayed}})
	}
	return all, nil
}

// Close implements [driver.Session]. It gives back what is out, too.
func (c *deadSession) Close(ctx context.Context) error {
	defer c.out.end()
	c.q.mu.Lock()
	delete(c.q.sessions, c)
	c.q.mu.Unlock()
	if c.claims && c.leases.Check() == nil {
		c.trim(ctx)
	}
	return c.leases.Release(ctx)
}

package redelivertest

import (
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// receive takes what waits, reads its state and holds it until it may go on.
func (r *reader) receive() {
	b := r.q.b
	b.mu.Lock()
	items := r.q.waiting(r)
	b.mu.Unlock()
	for _, it := range items {
		e := &entry{r: r, it: it}
		at := r.read(e)
		r.hold.Put(at, e)
	}
}

// read believes what stands behind the user's headers, as far as it can be right,
// and says when the entry may go on.
func (r *reader) read(e *entry) (at time.Time) {
	users, ours := e.it.split()
	stay := delayqueue.Arrive(&delayqueue.Arrival{
		Group: r.q.group, Origin: r.q.topic, Ladder: r.fwd.ladder,
		Level: e.it.level, Written: e.it.at, Jitter: r.jitter, Now: time.Now(),
	}, ours, func() string { return users.idOf(e.it.where, e.it.offset) })
	if len(stay.Findings) > 0 {
		r.sub.Tell(redeliver.HeadersIgnored{Topic: e.it.where, ID: stay.State.ID, Findings: stay.Findings})
	}
	r.sub.Met(stay.State)
	e.state, e.rec = stay.State, &delivered{users, e.it, stay.State.ID, r.client.cfg.Decode}
	switch {
	case stay.Hops:
		e.then = toLevel
	case stay.Publish:
		e.then = toOrigin
	}
	return stay.Until
}

// release lets go what has waited long enough.
func (r *reader) release(now time.Time) {
	for {
		e, ok := r.hold.Pop(now)
		if !ok {
			return
		}
		r.due.Push(e)
	}
}

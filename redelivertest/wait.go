package redelivertest

import (
	"time"

	"github.com/redeliver/redeliver"
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
	st, findings := redeliver.ParseHeaders(r.q.group, ours)
	if len(ours) == 0 {
		findings = append(findings, redeliver.Finding{Header: redeliver.HeaderAttempt, Problem: "is missing where redeliver writes; the message counts as new"})
	}
	if st.ID == "" {
		st.ID = users.idOf(e.it.where, e.it.offset)
	}
	st.Group, st.Origin = r.q.group, r.q.topic
	whole := len(findings) == 0
	if st.Due.After(r.latest(e.it, st)) {
		findings = append(findings, redeliver.Finding{
			Header: redeliver.HeaderDue, Value: st.Due.Format(time.RFC3339Nano),
			Problem: "is later than anything there can be; the end of its level is taken",
		})
		st.Due = time.Time{}
	}
	if len(findings) > 0 {
		r.sub.Tell(redeliver.HeadersIgnored{Topic: e.it.where, ID: st.ID, Findings: findings})
	}
	end := e.it.at.Add(e.it.level)
	if st.Due.IsZero() {
		st.Due = redeliver.CeilMilli(end)
	}
	e.state, e.rec = &st, &delivered{users, e.it, st.ID, r.client.cfg.Decode}
	if whole && neverDelivered(st) {
		e.last = toOrigin
	}
	e.then = e.last
	// When the level is over and what remains is no shorter than the smallest
	// level, it hops; else it waits here until it is due.
	if _, more := r.fwd.ladder.Next(st.Due.Sub(end), 0); more {
		e.then = toLevel
		return end
	}
	return st.Due
}

// neverDelivered tells a delayed publish, which waits for its time to be
// published, from a message that a handler has seen or is to see.
func neverDelivered(st redeliver.State) bool {
	return !st.Source.Known && st.Attempts == 0 && st.Replays == 0 && st.PostponedSince.IsZero() && st.FirstFailed.IsZero()
}

// latest is the latest due time that an item can have: with more time left it
// would stand on the next longer level, unless another policy wrote it.
func (r *reader) latest(it *item, st redeliver.State) time.Time {
	above := r.fwd.ladder.Above(it.level)
	if it.level == 0 || above == 0 || st.Policy != "" && st.Policy != r.fwd.print {
		return it.at.Add(redeliver.MaxWait)
	}
	return it.at.Add(above + slack)
}

// release lets go what has waited long enough.
func (r *reader) release(now time.Time) {
	for {
		e, ok := r.hold.Pop(now)
		if !ok {
			return
		}
		if e.then == toLevel && e.state.Due.Sub(now) <= r.jitter {
			// What remains is jitter; a hop would only bring it to a place like this.
			e.then = e.last
			r.hold.Put(e.state.Due, e)
			continue
		}
		r.due.Push(e)
	}
}

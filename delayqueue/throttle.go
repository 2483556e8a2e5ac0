package delayqueue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// Pace of a [Throttle].
const (
	// throttleWindow is how long outcomes are counted before something is done.
	throttleWindow = time.Second
	// throttleMany is how many messages must fail in a window before it begins to
	// shrink: a few say nothing of a dependency.
	throttleMany = 10
	// throttleSteps is in how many windows it grows from nothing to all there is.
	throttleSteps = 16
)

// Throttle bounds what a subscription has in flight, first deliveries and retries
// together, while its messages fail: half of it when in a second at least half of
// them did, time and again, down to a least, and a sixteenth of all that there may
// be more when in a second nine of ten succeeded. It looks when a message lands, so
// an idle subscription stays as it is. Who finds no room gets it in turn: nobody who
// comes later is before them. The zero Throttle bounds nothing and costs nothing. It
// is safe for concurrent use.
//
// One place tells it of outcomes, and takes and gives back its room: the Flight of
// each lane, see [Flight.Bound], or, in an adapter whose lanes have one message each,
// the lane, by Enter and Leave.
//
// It also holds back what a policy's guards do, see guard: while there is an outage there
// is room for one probe at a time.
type Throttle struct {
	sub   *Subscription
	least int // 0: it does not shrink
	most  int
	guard *guard // nil for none

	mu        sync.Mutex
	limit     int // 0 when it does not shrink
	in        int // has taken room
	peak      int // the most of that in this window
	since     time.Time
	good, bad int           // landed in this window
	line      FIFO[*waiter] // there is none while there is room
	resumers  FIFO[*waiter] // those that have room, and wait in place for an end of an outage
	seq       uint64        // of waiters
	armed     time.Duration // what the guard's timer is set for; 0 for none
	alarm     *time.Timer
	telling   sync.Mutex
}

// waiter stands in the line for room.
type waiter struct {
	room  chan struct{} // closed when it has got some
	probe bool          // as a probe. It is set before that
	seq   uint64
}

// Outcome of a message for a Throttle: what it says of the dependency.
type outcome uint8

const (
	silent outcome = iota // nothing: the message is to blame, or it was lost
	well
	ill
)

// Shrink has the subscription's Throttle bound what is in flight: least is
// MinInFlight, most what may be in flight otherwise. It must be called before the
// first delivery, when the Policy is set; with a least of 0 it does not shrink.
func (s *Subscription) Shrink(least, most int) {
	s.Throttle.sub, s.Throttle.least, s.Throttle.most = s, least, most
	s.Throttle.guard = newGuard(&s.Policy)
}

// Bounds tells whether it may ever hold back anything.
func (t *Throttle) Bounds() bool { return t.least > 0 || t.guard != nil }

// Limit is how many messages may be in flight now; 0 for as many as always.
func (t *Throttle) Limit() int {
	if !t.Bounds() {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.guard != nil && t.guard.held() {
		return 1
	}
	return t.limit
}

// Enter waits for room for d's message and takes it. It is false when ctx has ended
// before; after true, Leave must be called. d may be nil for one of which nothing is known.
func (t *Throttle) Enter(ctx context.Context, d *Delivery) bool {
	if !t.Bounds() || ctx.Err() != nil {
		return ctx.Err() == nil
	}
	w, probe := t.enter()
	if w != nil {
		select {
		case <-w.room:
			probe = w.probe
		case <-ctx.Done():
			t.quit(w)
			return false
		}
	}
	if probe && d != nil {
		d.root().probe.Store(true)
	}
	return true
}

// Leave gives the room of d's message back, which ended so.
func (t *Throttle) Leave(d *Delivery, how Ending) {
	if t.Bounds() {
		t.landed(d, how, d != nil && d.root().probe.Swap(false))
	}
}

// enter takes room for one message, or, where there is none, a place in the line.
func (t *Throttle) enter() (w *waiter, probe bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ok, probe := t.take()
	if ok {
		return nil, probe
	}
	return t.push(), false
}

// queue takes a place in the line, where there is no room.
func (t *Throttle) queue() *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if (t.guard == nil || !t.guard.held()) && (t.limit == 0 || t.in < t.limit) {
		return nil
	}
	w := t.push()
	t.serve()
	return w
}

func (t *Throttle) push() *waiter {
	t.seq++
	w := &waiter{room: make(chan struct{}), seq: t.seq}
	t.line.Push(w)
	return w
}

// quit leaves the line, or gives back the room that was got there.
func (t *Throttle) quit(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.has() {
		t.in--
		if w.probe {
			t.guard.out--
		}
		t.serve()
		return
	}
	t.line.Delete(func(other *waiter) bool { return other == w })
}

// has tells whether it has got room.
func (w *waiter) has() bool {
	select {
	case <-w.room:
		return true
	default:
		return false
	}
}

// take takes room for one message, if there is some; while the guard holds back there is
// for a probe. The caller holds mu.
func (t *Throttle) take() (ok, probe bool) {
	switch {
	case t.guard != nil && t.guard.held():
		if !t.lend() {
			return false, false
		}
		probe = true
	case t.limit > 0 && t.in >= t.limit:
		return false, false
	}
	t.add()
	return true, probe
}

// lend has a probe begin, if one may. The caller holds mu.
func (t *Throttle) lend() bool {
	ok := t.guard.lend(t.guard.now())
	if ok {
		t.arm()
	}
	return ok
}

// squeeze takes room for one message, whether there is some or not.
func (t *Throttle) squeeze() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add()
}

func (t *Throttle) add() {
	t.in++
	t.peak = max(t.peak, t.in)
}

// give gives room back, of n messages, so many of which were probes.
func (t *Throttle) give(n, probes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.in -= n
	if probes > 0 {
		t.guard.out -= probes
	}
	t.serve()
}

// serve gives the room that there is to those who wait for it, in their order. Who only
// waits to go on has room, and is not held up by those who want some. What is left waits
// for a time, perhaps, for which a timer is set. The caller holds mu.
func (t *Throttle) serve() {
	t.serveLines()
	if t.guard != nil && t.guard.held() {
		t.arm()
	}
}

func (t *Throttle) serveLines() {
	for !t.line.Empty() || !t.resumers.Empty() {
		held := t.guard != nil && t.guard.held()
		line := &t.line
		var ok, probe bool
		if !t.resumers.Empty() && (!held || t.line.Empty() || t.resumers.Peek().seq < t.line.Peek().seq) {
			line, ok, probe = &t.resumers, !held || t.lend(), held
		} else {
			ok, probe = t.take()
		}
		if !ok {
			return
		}
		w := line.Pop()
		w.probe = probe
		close(w.room)
	}
}

// landed gives back the room of a message and counts what became of it.
func (t *Throttle) landed(d *Delivery, how Ending, probe bool) {
	now, what := time.Now(), said(d, how)
	t.mu.Lock()
	t.in--
	if probe {
		t.guard.out--
	}
	if t.guard != nil && what == well {
		t.guard.succeeded(probe || d.Alone, now.Sub(t.guard.born))
	}
	switch what {
	case well:
		t.good++
	case ill:
		t.bad++
	case silent:
	}
	var news *redeliver.SubscriptionChanged
	switch {
	case t.since.IsZero():
		t.since = now
	case now.Sub(t.since) >= throttleWindow:
		news = t.turn()
		t.since, t.good, t.bad, t.peak = now, 0, 0, t.in
	}
	t.serve()
	tells := t.guard != nil && len(t.guard.news) > 0
	t.mu.Unlock()
	if news != nil {
		t.sub.Tell(*news)
	}
	if tells {
		t.announce()
	}
}

// turn is the end of a window. It returns what is to be told: that it begins to
// shrink, or that it is back. The caller holds mu.
func (t *Throttle) turn() *redeliver.SubscriptionChanged {
	all, was := t.good+t.bad, t.limit
	switch {
	case t.least == 0:
	case t.bad*2 >= all && (t.bad >= throttleMany || was > 0 && t.bad > 0):
		if was == 0 { // from what was used, not from what might have been
			was = min(t.peak, t.most)
		}
		began := t.limit == 0
		t.limit = max(t.least, was/2)
		if began {
			return &redeliver.SubscriptionChanged{
				Origin: t.sub.Origin, Group: t.sub.Group, Change: redeliver.ChangeThrottled,
				Detail: fmt.Sprintf("%d of %d messages failed in a second; at most %d of %d are in flight now, and fewer if that goes on", t.bad, all, t.limit, t.most),
			}
		}
	case was > 0 && all > 0 && t.bad*10 <= all:
		t.limit += max(1, t.most/throttleSteps)
		if t.limit >= t.most {
			t.limit = 0
			return &redeliver.SubscriptionChanged{
				Origin: t.sub.Origin, Group: t.sub.Group, Change: redeliver.ChangeThrottleOver,
				Detail: fmt.Sprintf("messages succeed again; up to %d are in flight", t.most),
			}
		}
	}
	return nil
}

// tells is what a decision about a failure says of the dependency. What is wrong
// with the message itself says nothing.
func tells(dec *redeliver.Decision) outcome {
	if dec.Action != redeliver.DeadLetter {
		return ill
	}
	switch dec.State.Reason {
	case redeliver.ReasonExhausted, redeliver.ReasonTimeout, redeliver.ReasonPanic, redeliver.ReasonExpired, redeliver.ReasonUnschedulable:
		return ill
	default:
		return silent
	}
}

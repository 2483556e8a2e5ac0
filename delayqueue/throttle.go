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
type Throttle struct {
	sub   *Subscription
	least int // 0: it bounds nothing
	most  int

	mu        sync.Mutex
	limit     int // 0 when it does not shrink
	in        int // has taken room
	peak      int // the most of that in this window
	since     time.Time
	good, bad int           // landed in this window
	line      FIFO[*waiter] // there is none while there is room
}

// waiter stands in the line for room.
type waiter struct{ room chan struct{} } // closed when it has got some

// Outcome of a message for a Throttle: what it says of the dependency.
type outcome uint8

const (
	silent outcome = iota // nothing: the message is to blame, or it was lost
	well
	ill
)

// Shrink has the subscription's Throttle bound what is in flight: least is
// MinInFlight, most what may be in flight otherwise. It must be called before the
// first delivery; with a least of 0 it does nothing.
func (s *Subscription) Shrink(least, most int) {
	s.Throttle.sub, s.Throttle.least, s.Throttle.most = s, least, most
}

// Limit is how many messages may be in flight now; 0 for as many as always.
func (t *Throttle) Limit() int {
	if t.least == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.limit
}

// Enter waits for room for one message and takes it. It is false when ctx has ended
// before; after true, Leave must be called.
func (t *Throttle) Enter(ctx context.Context) bool {
	if t.least == 0 || ctx.Err() != nil {
		return ctx.Err() == nil
	}
	w := t.enter()
	if w == nil {
		return true
	}
	select {
	case <-w.room:
		return true
	case <-ctx.Done():
		t.quit(w)
		return false
	}
}

// Leave gives the room of d's message back, which ended so.
func (t *Throttle) Leave(d *Delivery, how Ending) {
	if t.least > 0 {
		t.landed(said(d, how))
	}
}

// enter takes room for one message, or, where there is none, a place in the line.
func (t *Throttle) enter() *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.take() {
		return nil
	}
	return t.push()
}

// queue takes a place in the line, where there is no room.
func (t *Throttle) queue() *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limit == 0 || t.in < t.limit {
		return nil
	}
	return t.push()
}

func (t *Throttle) push() *waiter {
	w := &waiter{make(chan struct{})}
	t.line.Push(w)
	return w
}

// quit leaves the line, or gives back the room that was got there.
func (t *Throttle) quit(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.has() {
		t.in--
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

// take takes room for one message, if there is some. The caller holds mu.
func (t *Throttle) take() bool {
	if t.limit > 0 && t.in >= t.limit {
		return false
	}
	t.add()
	return true
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

// give gives room back, of n messages.
func (t *Throttle) give(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.in -= n
	t.serve()
}

// serve gives the room that there is to those who wait for it, in their order. The
// caller holds mu.
func (t *Throttle) serve() {
	for !t.line.Empty() && t.take() {
		close(t.line.Pop().room)
	}
}

// landed gives back the room of a message and counts what became of it.
func (t *Throttle) landed(how outcome) {
	now := time.Now()
	t.mu.Lock()
	t.in--
	switch how {
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
	t.mu.Unlock()
	if news != nil {
		t.sub.Tell(*news)
	}
}

// turn is the end of a window. It returns what is to be told: that it begins to
// shrink, or that it is back. The caller holds mu.
func (t *Throttle) turn() *redeliver.SubscriptionChanged {
	all, was := t.good+t.bad, t.limit
	switch {
	case t.bad*2 >= all && (t.bad >= throttleMany || was > 0 && t.bad > 0):
		if was == 0 { // from what was used, not from what might have been
			was = min(t.peak, t.most)
		}
		began := t.limit == 0
		t.limit = max(t.least, was/2)
		if began {
			return &redeliver.SubscriptionChanged{
				Origin: t.sub.Origin, Group: t.sub.Group, Change: "throttled",
				Detail: fmt.Sprintf("%d of %d messages failed in a second; at most %d of %d are in flight now, and fewer if that goes on", t.bad, all, t.limit, t.most),
			}
		}
	case was > 0 && all > 0 && t.bad*10 <= all:
		t.limit += max(1, t.most/throttleSteps)
		if t.limit >= t.most {
			t.limit = 0
			return &redeliver.SubscriptionChanged{
				Origin: t.sub.Origin, Group: t.sub.Group, Change: "throttle over",
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

package delayqueue

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Ending is how a message's way through this process ended.
type Ending uint8

// The endings.
const (
	Acked     Ending = iota
	Nacked           // without an error: the subscriber must do something about it
	Forwarded        // written to where it waits or to the DLQ
	Abandoned        // not settled; it comes back
)

// Flyer is what an adapter keeps for a message in flight; it embeds a Seat.
// Delivery is nil while there is none yet, Handed nil where no handler gets it.
type Flyer interface {
	comparable
	Delivery() *Delivery
	Handed() *message.Message
	seat() *Seat
}

// Seat is where a message sits in its flight: to look there is cheaper than to
// look it up.
type Seat struct {
	n     int         // counted from 1; 0 for none
	probe atomic.Bool // it was let through in an outage, see guard
}

func (s *Seat) seat() *Seat { return s }

var _ interface{ seat() *Seat } = (*Seat)(nil) // whoever embeds one is a Flyer

// landing is the end of one message's flight.
type landing[E Flyer] struct {
	e   E
	how Ending
}

// Flight is the messages that a subscriber has in flight: from the slot that
// each took until it is settled. All methods but Report, Len and Load belong to
// the one goroutine that runs the subscription; others report to it.
type Flight[E Flyer] struct {
	in        []E           // in no order
	bell      chan struct{} // has one when there are landings
	gone      chan struct{} // closed when nobody listens any more
	unwatched []E           // in flight, and nobody waits for their ack
	leaving   []E           // settled by a Forward; their handlers' answers are on the way
	n         atomic.Int64
	held      atomic.Int64 // see Holds
	throttle  *Throttle    // nil: nothing is bounded

	mu       sync.Mutex
	landings []landing[E] // since the last Poll
	polled   []landing[E] // room for the next ones; Poll's own

	room  bool    // taken for the next message
	probe bool    // as a probe
	waits *waiter // for it; nil: it does not stand in the line
}

const (
	// Glance is how often a subscription that has nothing else to do should
	// Poll while something is Unwatched.
	Glance = 50 * time.Millisecond

	oldest      = 8    // how many of the unwatched messages a Poll looks at
	leavingMost = 1024 // handlers that are waited for although their messages have moved on
)

// NewFlight makes a flight.
func NewFlight[E Flyer]() *Flight[E] {
	return &Flight[E]{bell: make(chan struct{}, 1), gone: make(chan struct{})}
}

// Bound has the throttle of a subscription bound what is in flight: Room must be
// asked before each Begin.
func (f *Flight[E]) Bound(t *Throttle) {
	if t.Bounds() {
		f.throttle = t
	}
}

// Room tells whether the subscription's throttle has room for one more message,
// and keeps it for the next Begin. Where it has none, the flight stands in the line
// for it from then on: who finds that it has nothing to begin must say so, by Yield.
func (f *Flight[E]) Room() bool {
	switch {
	case f.throttle == nil || f.room:
		return true
	case f.waits == nil:
		f.waits, f.probe = f.throttle.enter()
		f.room = f.waits == nil
	default:
		f.got()
	}
	return f.room
}

// got takes the room that it has got in the line, if it has.
func (f *Flight[E]) got() bool {
	if f.waits == nil || !f.waits.has() {
		return false
	}
	f.room, f.probe, f.waits = true, f.waits.probe, nil
	return true
}

// Squeeze is Room for a message for which all others wait: it has room where there is
// none.
func (f *Flight[E]) Squeeze() {
	switch {
	case f.throttle == nil || f.room || f.got():
	default:
		f.throttle.squeeze()
		f.room = true
	}
}

// Owes is Squeeze where the policy's guards hold back what is new: for messages that must
// still begin because a part of the subscription ends.
func (f *Flight[E]) Owes() {
	if f.throttle != nil && f.throttle.Held() {
		f.Squeeze()
	}
}

// More returns a channel that is closed once there is room; at once where there is
// some, which it does not take. Where there is none it is as Room.
func (f *Flight[E]) More() <-chan struct{} {
	if f.throttle != nil && !f.room && f.waits == nil {
		f.waits = f.throttle.queue()
	}
	if f.waits != nil {
		return f.waits.room
	}
	now := make(chan struct{})
	close(now)
	return now
}

// Waits returns a channel that is closed once the flight has got room in the line; nil
// where it does not stand there.
func (f *Flight[E]) Waits() <-chan struct{} {
	if f.waits == nil {
		return nil
	}
	return f.waits.room
}

// Yield lets others have the room that was kept for the next message, or the place in
// the line for it: there is none to begin.
func (f *Flight[E]) Yield() {
	if f.waits != nil {
		f.throttle.quit(f.waits)
		f.waits = nil
	}
	if f.room {
		f.throttle.give(1, f.probes())
		f.room = false
	}
}

// probes is how many probes the room is for that is taken; it is forgotten.
func (f *Flight[E]) probes() (n int) {
	if f.probe {
		n = 1
	}
	f.probe = false
	return n
}

// Begin puts a message in flight.
func (f *Flight[E]) Begin(e E) {
	if f.room = false; f.probe {
		f.probe = false
		e.seat().probe.Store(true)
	}
	f.in = append(f.in, e)
	e.seat().n = len(f.in)
	f.n.Store(int64(len(f.in)))
}

// Handed notes that a message was taken by a handler.
func (f *Flight[E]) Handed(e E) { f.unwatched = append(f.unwatched, e) }

// Has tells whether a message is in flight.
func (f *Flight[E]) Has(e E) bool { return e.seat().n > 0 }

// Len is the number of messages in flight. Any goroutine may ask.
func (f *Flight[E]) Len() int { return int(f.n.Load()) }

// Bell has something when messages have landed that others wait for: Poll sees them.
func (f *Flight[E]) Bell() <-chan struct{} { return f.bell }

// Unwatched tells whether there are messages that only Poll sees landing.
func (f *Flight[E]) Unwatched() bool { return len(f.unwatched) > 0 }

// Report tells the subscription, from another goroutine, how a message ended.
func (f *Flight[E]) Report(e E, how Ending) {
	f.mu.Lock()
	f.landings = append(f.landings, landing[E]{e, how})
	first := len(f.landings) == 1
	f.mu.Unlock()
	if first {
		select {
		case f.bell <- struct{}{}:
		default:
		}
	}
}

// Poll calls land for what was settled since the last look; land must not Poll. Only
// the oldest are looked at: a message that takes long gets a goroutine that waits for it.
func (f *Flight[E]) Poll(land func(E, Ending)) (busy bool) {
	f.mu.Lock()
	landed := f.landings
	f.landings = f.polled
	f.mu.Unlock()
	for _, l := range landed {
		land(l.e, l.how)
		busy = true
	}
	clear(landed)
	f.polled = landed[:0]
	kept := f.unwatched[:0]
	for i, e := range f.unwatched {
		if len(kept) >= oldest {
			kept = append(kept, f.unwatched[i:]...)
			break
		}
		switch how, ok := answer(e.Handed()); {
		case !ok:
			kept = append(kept, e)
		case moves(e.Delivery()):
			// It is answered because it has moved on, and that was reported before; since
			// the look at what landed, perhaps. To take the answer for its end would have
			// a message deleted that waits in place.
		default:
			land(e, how)
			busy = true
		}
	}
	clear(f.unwatched[len(kept):])
	f.unwatched = kept
	f.part()
	return busy
}

// moves tells whether somebody reports, or has reported, what became of a delivery.
func moves(d *Delivery) bool { return d != nil && d.root().Mover != nil && d.Moving() }

// part ends the contexts of messages that have moved on, once the Router is
// through with them: a middleware around Retry may still use them.
func (f *Flight[E]) part() {
	n := 0
	for ; n < len(f.leaving); n++ {
		if _, ok := answer(f.leaving[n].Handed()); !ok && n+leavingMost >= len(f.leaving) {
			break
		}
		f.leaving[n].Delivery().End(nil)
	}
	f.leaving = slices.Delete(f.leaving, 0, n)
}

func answer(msg *message.Message) (how Ending, ok bool) {
	select {
	case <-msg.Acked():
		return Acked, true
	default:
	}
	select {
	case <-msg.Nacked():
		return Nacked, true
	default:
		return 0, false
	}
}

// Watch has a goroutine wait for each message in flight that has none and that
// is not on its way elsewhere: the end of that way is reported.
func (f *Flight[E]) Watch() {
	for _, e := range f.unwatched {
		if !moves(e.Delivery()) {
			go f.wait(e)
		}
	}
	clear(f.unwatched)
	f.unwatched = f.unwatched[:0]
}

func (f *Flight[E]) wait(e E) {
	msg, how := e.Handed(), Acked
	select {
	case <-msg.Acked():
	case <-msg.Nacked():
		how = Nacked
	case <-f.gone:
		return
	}
	f.Report(e, how)
}

// Land takes a message out of flight, ends its context and tells the sink of a
// commit. It is false for one that is not in flight: it was given up.
func (f *Flight[E]) Land(e E, how Ending) bool {
	if !f.Has(e) {
		return false
	}
	f.leave(e.seat())
	d := e.Delivery()
	if f.throttle != nil {
		f.throttle.landed(d, how, e.seat().probe.Swap(false))
	}
	if d == nil {
		return true
	}
	if how == Forwarded && e.Handed() != nil {
		f.leaving = append(f.leaving, e)
	} else {
		d.End(nil)
	}
	if how == Acked && !d.Forwarded() {
		d.Sub.Committed(d)
	}
	return true
}

// leave gives a seat to the last one.
func (f *Flight[E]) leave(s *Seat) {
	var none E
	last := len(f.in)
	f.in[s.n-1], f.in[last-1].seat().n = f.in[last-1], s.n
	f.in[last-1], s.n = none, 0
	f.in = f.in[:last-1]
	f.n.Store(int64(last - 1))
}

// said is what the end of a message says of what its handler depends on.
func said(d *Delivery, how Ending) outcome {
	switch {
	case d == nil || how != Acked && how != Forwarded:
		return silent
	case d.Forwarded():
		return d.root().said
	case how == Acked:
		return well
	default: // it was moved on without a handler: to a shorter level, say
		return silent
	}
}

// All yields what is in flight, in no order. Messages may land meanwhile.
func (f *Flight[E]) All(yield func(E) bool) {
	for _, e := range slices.Clone(f.in) {
		if f.Has(e) && !yield(e) {
			return
		}
	}
}

// Close ends the flight: reports are not waited for any more.
func (f *Flight[E]) Close() {
	close(f.gone)
	if f.throttle != nil {
		f.Yield()
		probes := 0
		for _, e := range f.in {
			if e.seat().probe.Swap(false) {
				probes++
			}
		}
		f.throttle.give(len(f.in), probes)
		f.throttle = nil
	}
}

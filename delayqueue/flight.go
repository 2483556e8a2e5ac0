package delayqueue

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
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

// Flyer is what an adapter keeps for a message in flight. Delivery is nil while
// there is none yet, Handed nil where no handler gets it.
type Flyer interface {
	comparable
	Delivery() *Delivery
	Handed() *message.Message
}

// Landing is the end of one message's flight.
type Landing[E Flyer] struct {
	E   E
	How Ending
}

// Flight is the messages that a subscriber has in flight: from the slot that
// each took until it is settled. All methods but Report, Len and Gone belong to
// the one goroutine that runs the subscription; others report to it.
type Flight[E Flyer] struct {
	in        map[E]struct{}
	landings  chan Landing[E]
	gone      chan struct{} // closed when nobody listens any more
	unwatched []E           // in flight, and nobody waits for their ack
	leaving   []E           // settled by a Forward; their handlers' answers are on the way
	n         atomic.Int64
	throttle  *Throttle // nil: nothing is bounded
	room      bool      // taken for the next message
}

const (
	// Glance is how often a subscription that has nothing else to do should
	// Poll while something is Unwatched.
	Glance = 50 * time.Millisecond

	oldest      = 8    // how many of the unwatched messages a Poll looks at
	leavingMost = 1024 // handlers that are waited for although their messages have moved on
)

// NewFlight makes a flight for about as many messages.
func NewFlight[E Flyer](slots int) *Flight[E] {
	return &Flight[E]{in: make(map[E]struct{}), landings: make(chan Landing[E], slots), gone: make(chan struct{})}
}

// Bound has the throttle of a subscription bound what is in flight: Room must be
// asked before each Begin.
func (f *Flight[E]) Bound(t *Throttle) {
	if t.least > 0 {
		f.throttle = t
	}
}

// Room tells whether the subscription's throttle has room for one more message,
// and keeps it for the next Begin.
func (f *Flight[E]) Room() bool {
	if f.throttle == nil || f.room {
		return true
	}
	f.room = f.throttle.take()
	return f.room
}

// More returns a channel that is closed once there is room; nil where nothing is
// waited for.
func (f *Flight[E]) More() <-chan struct{} {
	if f.throttle == nil || f.room {
		return nil
	}
	return f.throttle.room()
}

// Begin puts a message in flight.
func (f *Flight[E]) Begin(e E) {
	f.room = false
	f.in[e] = struct{}{}
	f.n.Store(int64(len(f.in)))
}

// Handed notes that a message was taken by a handler.
func (f *Flight[E]) Handed(e E) { f.unwatched = append(f.unwatched, e) }

// Has tells whether a message is in flight.
func (f *Flight[E]) Has(e E) bool {
	_, ok := f.in[e]
	return ok
}

// Len is the number of messages in flight. Any goroutine may ask.
func (f *Flight[E]) Len() int { return int(f.n.Load()) }

// Landings is where messages land that others wait for; each is for Land.
func (f *Flight[E]) Landings() <-chan Landing[E] { return f.landings }

// Unwatched tells whether there are messages that only Poll sees landing.
func (f *Flight[E]) Unwatched() bool { return len(f.unwatched) > 0 }

// Report tells the subscription, from another goroutine, how a message ended.
func (f *Flight[E]) Report(e E, how Ending) {
	select { // there is room nearly always, and to wait for one thing is cheaper
	case f.landings <- Landing[E]{e, how}:
		return
	default:
	}
	select {
	case f.landings <- Landing[E]{e, how}:
	case <-f.gone:
	}
}

// Poll calls land for what was settled since the last look. Only the oldest are
// looked at: a message that takes long gets a goroutine that waits for it.
func (f *Flight[E]) Poll(land func(E, Ending)) (busy bool) {
	for more := true; more; {
		select {
		case l := <-f.landings:
			land(l.E, l.How)
			busy = true
		default:
			more = false
		}
	}
	kept := f.unwatched[:0]
	for i, e := range f.unwatched {
		if len(kept) >= oldest {
			kept = append(kept, f.unwatched[i:]...)
			break
		}
		if how, ok := answer(e.Handed()); ok {
			land(e, how)
			busy = true
		} else {
			kept = append(kept, e)
		}
	}
	clear(f.unwatched[len(kept):])
	f.unwatched = kept
	f.part()
	return busy
}

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
		if !e.Delivery().Moving() {
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
	delete(f.in, e)
	f.n.Store(int64(len(f.in)))
	d := e.Delivery()
	if f.throttle != nil {
		f.throttle.landed(said(d, how))
	}
	if d == nil {
		return true
	}
	if how == Forwarded && e.Handed() != nil {
		f.leaving = append(f.leaving, e)
	} else {
		d.End(nil)
	}
	if how == Acked && d.Sub.Sink != nil && !d.Forwarded() {
		d.Sub.Tell(redeliver.Committed{State: d.State()})
	}
	return true
}

// said is what the end of a message says of what its handler depends on.
func said(d *Delivery, how Ending) outcome {
	switch {
	case d == nil || how != Acked && how != Forwarded:
		return silent
	case d.Forwarded():
		return d.root().said
	default:
		return well
	}
}

// All yields what is in flight, in no order. Messages may land meanwhile.
func (f *Flight[E]) All(yield func(E) bool) {
	for e := range f.in {
		if !yield(e) {
			return
		}
	}
}

// Close ends the flight: reports are not waited for any more.
func (f *Flight[E]) Close() {
	close(f.gone)
	if f.throttle != nil {
		left := len(f.in)
		if f.room {
			left++
		}
		f.throttle.give(left)
		f.throttle = nil
	}
}

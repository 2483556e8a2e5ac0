package amqp

import (
	"runtime/debug"
	"time"

	"github.com/redeliver/redeliver"
)

// lines are the messages in hand of a queue that keeps its order, by key: the first
// of each runs or waits, the others stand behind it, unrun. Where the Order is
// Blocking there is one line.
type lines map[string]*entry // the last of each

// line gives an entry the key behind which it stands.
func (l *lane) line(e *entry) {
	if l.r.sub.Policy.Order == redeliver.Blocking {
		e.keyed = true
		return
	}
	if e.rec.unread != nil { // it goes to the DLQ, and nobody knows its key
		return
	}
	defer func() {
		if v := recover(); v != nil {
			e.rec.unread = &redeliver.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	e.key = l.r.client.cfg.Key(e.rec.Delivery)
	e.keyed = e.key != ""
}

// keyAgain gives an entry from a queue of ours the key by which Policy.Invalid may know it:
// there it stands behind nobody. One over which Key panics now has none.
func (l *lane) keyAgain(e *entry) {
	if p := &l.r.sub.Policy; p.Order != redeliver.PerKey || p.Invalid == nil || e.rec.unread != nil {
		return
	}
	defer func() { _ = recover() }()
	e.key = l.r.client.cfg.Key(e.rec.Delivery)
}

// enqueue puts an entry behind its key, or lets it go.
func (l *lane) enqueue(e *entry) {
	if last := l.lines[e.key]; e.keyed {
		l.lines[e.key] = e
		if last != nil {
			last.behind = e
			return
		}
	}
	l.step(e)
}

// step lets the first of its line go, as soon as it is due: it may have failed
// before its channel was lost.
func (l *lane) step(e *entry) {
	if e.solo != nil {
		l.seclude(e)
		return
	}
	if e.state == nil || !l.hold.Put(e.state.Due, e) {
		l.ready.Push(e)
	}
}

// free lets the one behind an entry go, which is settled.
func (l *lane) free(e *entry) {
	switch {
	case !e.keyed:
	case e.behind != nil:
		l.step(e.behind)
		e.behind = nil
	case l.lines[e.key] == e:
		delete(l.lines, e.key)
	}
}

// Waits implements [delayqueue.Resumer]. While it waits in place an entry holds
// neither a slot nor up a suspect.
func (e *entry) Waits(st *redeliver.State) {
	e.waited.Store(st)
	e.sits.Store(true)
	e.unslot()
	e.rest()
	if e.solo != nil {
		e.solo.end(false)
	}
	e.lane.waiting.begin()
}

// Resumes implements [delayqueue.Resumer].
func (e *entry) Resumes(lost <-chan struct{}) bool {
	if !e.enter(lost) {
		return false
	}
	if !e.lane.waiting.end(e) { // the lane ends
		e.exit()
		<-lost
		return false
	}
	if e.d.Lost() { // the lane may have looked before all of this was held
		e.exit()
		return false
	}
	return true
}

// enter takes what an entry needs whose handler is to run again: a suspect a turn of
// its own, another one a slot, and a part in the turn of the others. It keeps neither
// while it waits for the other.
func (e *entry) enter(lost <-chan struct{}) bool {
	if e.solo != nil {
		return e.solo.begin(e.lane.ctx)
	}
	turn := e.lane.r.client.turn
	for {
		select {
		case e.lane.slots <- struct{}{}:
			e.slotted.Store(true)
		case <-lost:
			return false
		}
		if turn.Begin() {
			e.busy.Store(true)
			return true
		}
		e.unslot()
		select {
		case <-turn.Calm():
		case <-lost:
			return false
		}
	}
}

// exit gives back what enter took.
func (e *entry) exit() {
	e.unslot()
	e.rest()
	if e.solo != nil {
		e.solo.end(false)
	}
}

// unslot gives back the slot of an entry, from any goroutine.
func (e *entry) unslot() {
	if e.slotted.Swap(false) {
		<-e.lane.slots
	}
}

// tire has the lane end its channel, when no handler runs, if something has lain
// here unrun for half of the time after which the broker would close it: all that is
// in hand comes back in order, and what waits in place goes on as it was. It is
// looked at now and then.
func (l *lane) tire(now time.Time, limit time.Duration) {
	for e := range l.acks.untold {
		if now.Sub(e.arrived) < limit {
			return // those behind it came later
		}
		if e.what == open && (!l.flight.Has(e) || e.sits.Load()) {
			l.tired = true
			l.waiting.stop()
			return
		}
	}
}

// rested tells whether the lane is to end its channel, and may: no handler runs.
func (l *lane) rested() bool { return l.tired && l.flight.Len() == l.waiting.count() }

// keepPlaces remembers what is known of the messages in hand that have failed: they
// come back to this queue, as if they were new.
func (l *lane) keepPlaces() {
	if !l.ordered {
		return
	}
	for e := range l.acks.untold {
		st := e.waited.Load()
		if st == nil {
			st = e.state
		}
		if e.what == open && st != nil {
			l.r.client.places.Put(spot{l.queue, st.ID}, st)
		}
	}
}

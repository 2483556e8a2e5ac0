package kafka

import (
	"errors"
	"time"

	"github.com/redeliver/redeliver/delayqueue"
)

// errMoved is why the context of a message ends whose handler did not finish
// within the drain timeout.
var errMoved = errors.New("kafka: the partition was revoked or the subscriber closed, and the drain timeout is over")

// shortly is how long a drain waits for what comes due by itself: with jitter a
// record may have to wait although later ones have run.
func (r *reader) shortly() time.Duration {
	return min(r.jitter+250*time.Millisecond, r.client.cfg.DrainTimeout/2)
}

// idleLooks so many glances in a row at which a consumer has nothing in hand and
// takes nothing say that it takes no more. One that is busy, or that the machine
// leaves no time, is not to be mistaken for it: what is pulled back comes again,
// and so does what was begun above it.
const idleLooks = 10

// drain is the end of a lane: what waits is given up, and what is in flight may
// finish within the drain timeout, so that the member that reads the partition
// next begins behind it. What stands below a record that was handed out is still
// begun: without it the mark would stay below, and all above would come twice.
// over is true when the whole session ends, not only this partition's part in it.
func (l *lane) drain(over bool) {
	l.draining = true
	l.r.sub.Drain.Begin()
	defer l.r.sub.Drain.End()
	l.flight.Holds(0) // it is given up
	l.poll()
	l.forget()
	deadline := time.NewTimer(l.r.client.cfg.DrainTimeout)
	defer deadline.Stop()
	// What lies ready is left to a consumer that goes on taking.
	look := time.NewTicker(delayqueue.Glance)
	defer look.Stop()
	idle, began := 0, time.Now()
	for waiting := true; waiting; {
		l.collected()
		l.renounce()
		due := l.dueSoon(began)
		out := l.r.out
		if !l.prepare() {
			out = nil
		}
		l.flight.Watch()
		if l.flight.Len() == 0 && !l.choose() && due == nil && len(l.behind) == 0 {
			break
		}
		select {
		case out <- l.peek():
			l.sent()
		case <-l.flight.Bell():
			before := l.begun
			l.flight.Poll(l.end)
			if l.begun < before { // it was abandoned
				l.forget()
			}
		case <-due:
		case <-l.box.bell:
			l.collected()
		case <-look.C: // and see whether a slot is free
			idle++
			if n := len(l.r.out); n == 0 || l.r.handed.Load() > int64(n) {
				idle = 0
			}
			if over && idle >= idleLooks {
				l.begun = 0
				l.forget()
				l.pullBack()
			}
		case <-deadline.C:
			waiting = false
		}
	}
	for e := range l.behind {
		l.lines.giveUp(e.card)
	}
	l.moved = l.track.mark > 0
	l.mark()
	l.depart()
	l.cancel(errMoved)
	l.flight.Close()
	if l.slot {
		<-l.slots
	}
	for e := range l.flight.All {
		l.unslot(e)
		if e.handed {
			l.r.handed.Add(-1)
		}
	}
	l.lastCommit()
}

// owed tells whether an entry stands below one that was handed out.
func (l *lane) owed(e *entry) bool { return e.number < l.begun }

// forget gives up what has not begun and is not owed, wherever it stands in the
// chain of its key: those of a delay topic are in the order in which they came
// due, so behind one that is not owed there may be one that is.
func (l *lane) forget() {
	clear(l.keys) // shorten says anew who is the last
	for e := range l.flight.All {
		l.shorten(e)
	}
	for e := range l.behind {
		if l.give(e) {
			delete(l.behind, e)
		}
	}
	freed := l.freed
	l.freed = nil
	l.ready.Delete(l.give)
	for _, e := range freed {
		if !l.give(e) {
			l.freed.push(e)
		}
	}
	if l.chosen != nil && l.give(l.chosen) {
		l.chosen = nil
	}
	if l.next != nil && !l.owed(l.next) {
		l.end(l.next, delayqueue.Abandoned)
		l.next = nil
	}
}

// give gives up an entry that is not owed and lets go what is, behind it.
func (l *lane) give(e *entry) (gone bool) {
	l.shorten(e)
	if l.owed(e) {
		return false
	}
	if e.card != nil {
		l.lines.giveUp(e.card)
	}
	l.free(e)
	return true
}

// shorten takes out of the chain behind an entry what is not owed.
func (l *lane) shorten(e *entry) {
	if !e.keyed {
		return
	}
	for e.behind != nil {
		if l.owed(e.behind) {
			e = e.behind
		} else {
			e.behind = e.behind.behind
		}
	}
	l.keys[e.key] = e
}

// dueSoon lets go what is due, of what stands below a record that was handed
// out, and tells when more of it will be within a short while.
func (l *lane) dueSoon(began time.Time) <-chan time.Time {
	if l.hold == nil || l.track.first >= l.begun {
		return nil
	}
	if l.lines != nil {
		l.moveOn()
		return nil
	}
	now := time.Now()
	l.release(now)
	l.forget()
	at, ok := l.hold.Next()
	if !ok || at.Sub(began) > l.r.shortly() {
		return nil
	}
	l.timer.Reset(at.Sub(now))
	return l.timer.C
}

// pullBack takes back the messages that lie ready and that nobody has taken:
// the session is over for all lanes, and nobody is going to.
func (l *lane) pullBack() {
	for {
		select {
		case msg := <-l.r.out:
			rec, ok := delayqueue.FromContext(msg.Context()).Record.(*record)
			if !ok {
				continue // cannot be: only lanes write here
			}
			e := rec.entry
			if e.lane == l {
				l.end(e, delayqueue.Abandoned)
			} else {
				e.lane.flight.Report(e, delayqueue.Abandoned)
			}
		default:
			return
		}
	}
}

package sqs

import (
	"slices"
	"time"

	"github.com/redeliver/redeliver/delayqueue"
)

// drain is the end of a lane whose subscription ends: what is in flight may
// finish within the drain timeout, and so may the receives that are waited for; see
// receive. What nobody has taken is given back at once, what waits here when it is
// due; the rest comes back when its time is over.
func (l *lane) drain() {
	l.stopping = true
	l.r.sub.Drain.Begin()
	defer l.r.sub.Drain.End()
	over := make(chan struct{})
	go func() {
		l.polling.Wait()
		close(over)
	}()
	if e := l.next; e != nil {
		l.next = nil
		e.unrun.Store(true)
		l.end(e, delayqueue.Abandoned)
	}
	l.flight.Holds(0) // it is given up
	l.giveBack()
	deadline := time.NewTimer(l.r.client.cfg.DrainTimeout)
	defer deadline.Stop()
	l.finish(deadline.C, over)
	l.cut()
	if l.kind == suspectQueue {
		l.acquit()
	}
	l.deleter.batches.hurry()
	l.hider.batches.hurry()
	deadline.Reset(min(l.r.client.cfg.SendTimeout, max(l.r.client.cfg.DrainTimeout, time.Second)))
	l.cleanUp(deadline.C, over)
	l.over(errDrained)
}

// finish waits for the pollers and for what is in flight.
func (l *lane) finish(deadline <-chan time.Time, over <-chan struct{}) {
	look := time.NewTicker(delayqueue.Glance)
	defer look.Stop()
	lying := -1
	for over != nil || l.flight.Len() > 0 || len(l.in) > 0 {
		if l.flight.Len() == 0 { // otherwise there is time
			l.hurry()
		}
		l.flight.Poll(l.end)
		l.flight.Watch()
		select {
		case a := <-l.in:
			l.arrive(a)
			if l.kind == suspectQueue {
				l.turnOver()
			}
		case <-over:
			over = nil
		case <-l.flight.Bell():
			l.flight.Poll(l.end)
		case d := <-l.deleted:
			l.gone(d)
		case b := <-l.beaten:
			l.heard(b)
		case <-look.C:
			l.sweep(time.Now())
			if n := len(l.r.out); n > 0 && n == lying { // nobody takes them
				l.pullBack()
			} else {
				lying = n
			}
		case <-deadline:
			return
		}
	}
}

// turnOver ends the turn of a suspect that came when the end had come.
func (l *lane) turnOver() {
	select {
	case l.landed <- struct{}{}:
	default:
	}
}

// giveBack gives back what lies here or waits, the last of a group first.
func (l *lane) giveBack() {
	if l.kind == suspectQueue {
		return
	}
	for _, g := range l.lines {
		for _, t := range slices.Backward(slices.Clone(g.items)) {
			l.giveBackOne(t)
		}
	}
	for _, t := range l.tickets {
		l.giveBackOne(t)
	}
}

func (l *lane) giveBackOne(t *ticket) {
	if e := t.entry; e != nil && l.tickets[t.id] == t && !l.flight.Has(e) {
		l.handBack(t, e.until)
	}
}

// cleanUp waits until the last receives are over, what is settled is deleted and
// what is given back is given.
func (l *lane) cleanUp(deadline <-chan time.Time, over <-chan struct{}) {
	if l.kind == suspectQueue { // it waits for a handler that goes on
		over = nil
	}
	for over != nil || len(l.in) > 0 {
		select {
		case a := <-l.in:
			l.arrive(a)
			if l.kind == suspectQueue {
				l.acquit()
			}
		case <-over:
			over = nil
		case d := <-l.deleted:
			l.gone(d)
		case <-l.beaten:
		case <-deadline:
			return
		}
	}
	back := make(chan struct{})
	go func() { // it ends: a request has its time
		l.backing.Wait()
		close(back)
	}()
	for l.settled > 0 || back != nil {
		select {
		case d := <-l.deleted:
			l.gone(d)
		case <-l.beaten:
		case <-back:
			back = nil
		case <-deadline:
			return
		}
	}
}

// pullBack takes back the messages that lie ready and that nobody has taken, of
// whichever lane they are.
func (l *lane) pullBack() {
	for {
		select {
		case msg := <-l.r.out:
			if rec, ok := delayqueue.FromContext(msg.Context()).Record.(*record); ok { // all of ours are
				rec.entry.unrun.Store(true)
				go rec.entry.Moved(false) // a lane that waited here could not listen
			}
		default:
			return
		}
	}
}

// over ends what is left in flight.
func (l *lane) over(cause error) {
	l.cancel(cause)
	l.flight.Close()
	for e := range l.flight.All {
		l.leave(e)
	}
	for _, t := range l.tickets {
		l.r.client.turn.Known.Add(t.id)
		t.End(cause)
	}
	for _, e := range l.leaving {
		e.ticket.End(cause)
	}
}

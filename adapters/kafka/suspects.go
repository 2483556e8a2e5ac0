package kafka

import (
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// begins takes what the chosen entry needs to begin, see caution: a slot, a part in
// the turn of the client's others, and room under the throttle. It keeps neither of
// the last two while it waits for the other. A suspect has its turn, for which all of
// these wait, so it needs none.
func (l *lane) begins() bool {
	if l.care != nil && !l.care.admit(l.chosen) {
		l.flight.Yield()
		return false
	}
	if l.chosen.alone != nil {
		if l.slot { // it was taken while nobody knew that this one goes without
			<-l.slots
			l.slot = false
		}
		l.flight.Squeeze()
		return true
	}
	if !l.slot {
		select {
		case l.slots <- struct{}{}:
			l.slot = true
		default:
			return false
		}
	}
	turn := l.r.client.turn
	if !l.uncounted && !turn.Begin() {
		l.flight.Yield()
		return false
	}
	if l.draining {
		l.flight.Owes()
	}
	if !l.flight.Room() {
		if !l.uncounted {
			turn.Rest()
		}
		return false
	}
	if !l.uncounted {
		l.chosen.busy.Store(true)
	}
	l.slot = false
	return true
}

// unslot gives back the slot of an entry, and its part in the turn.
func (l *lane) unslot(e *entry) {
	if e.alone == nil {
		<-l.slots
	}
	e.rest()
}

// room says what an entry that has a slot waits for: the end of a suspect's turn, or
// room under the throttle.
func (l *lane) room() (calm, more <-chan struct{}) {
	if l.uncounted {
		return nil, l.flight.More()
	}
	calm = l.r.client.turn.Calm()
	select {
	case <-calm:
		return nil, l.flight.More()
	default:
		return calm, nil
	}
}

// tend does what the lane's caution has to do, see there.
func (l *lane) tend() bool { return l.care != nil && l.care.tend() }

// renounce gives up, in a drain, what stands below a record that was handed out where
// the next of it may not begin now: all of that comes again.
func (l *lane) renounce() {
	if l.care == nil {
		return
	}
	l.care.tend()
	if l.next == nil && l.choose() && !l.care.allows(l.chosen) {
		l.begun = 0
		l.forget()
	}
}

// depart notes that the lane has ended in order, so that nobody takes its end for a
// death: its session's last commit says so. What is suspect stays so, uncharged.
func (l *lane) depart() {
	l.replaceBeginning()
	mark := max(l.track.mark, l.from)
	left := note{owner: l.r.client.owner, topic: l.r.lives[l.topic], state: stateLeft, alone: -1}
	c := l.care
	if c != nil {
		left.end, left.suspects = c.note.end, c.note.suspects
		defer c.end()
	}
	if l.note == "" && mark == l.from && (c == nil || !c.idle || c.blind) {
		return // it has noted nothing, so that the last one's word stands
	}
	if c == nil && l.note == "" {
		return // it heeds no notes
	}
	if c != nil {
		c.await()
		if c.blind { // what it has marked is committed without
			l.put()
			return
		}
	}
	l.note = left.text(mark)
	l.put()
	if c != nil && c.turn == held {
		l.sess.Commit() // before anything else of the client may kill it
	}
}

// put marks how far the lane has come, with its note.
func (l *lane) put() {
	mark := max(l.track.mark, l.from)
	// In this order: where the offset is marked already, only the second takes the note.
	l.replaceBeginning()
	l.sess.MarkOffset(l.topic, l.partition, mark, l.note)
	l.sess.ResetOffset(l.topic, l.partition, mark, l.note)
}

// await returns when nothing that the lane has had written can be taken any more: it
// must not be the last word.
func (c *caution) await() {
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	for _, i := range []*inscription{c.writing, c.late, c.l.beginning} {
		if i == nil {
			continue
		}
		i.stale.Store(true)
		select {
		case <-i.ended:
		case <-patience.C:
			return
		}
	}
}

// bury sends to the DLQ what was alone too often when its process died.
func (l *lane) bury(e *entry) {
	e.d = l.delivery(e)
	crashed := &redeliver.CrashedError{Times: e.crashes}
	l.forward(e, l.r.sub.Decide(e.d.State(), crashed, time.Now()), crashed)
}

// rest notes that no handler of the entry runs any more, from any goroutine: what is
// only to be written somewhere, however long that takes, holds up no suspect, and is
// not charged.
func (e *entry) rest() {
	if e.lane.uncounted || !e.busy.Swap(false) {
		return
	}
	if c := e.alone; c != nil {
		c.post(func() { c.solo = nil })
		return
	}
	e.lane.r.client.turn.Rest()
}

// Waits implements [delayqueue.Resumer]: while it waits in place an entry holds up no
// suspect, and is none that runs.
func (e *entry) Waits(*redeliver.State) { e.rest() }

// Resumes implements [delayqueue.Resumer].
func (e *entry) Resumes(lost <-chan struct{}) bool {
	if e.lane.uncounted {
		return true
	}
	if c := e.alone; c != nil {
		back := make(chan struct{})
		c.post(func() { c.waits = append(c.waits, waiting{e, back}) })
		select {
		case <-back:
			return true
		case <-lost:
			return false
		}
	}
	for turn := e.lane.r.client.turn; !turn.Begin(); {
		select {
		case <-turn.Calm():
		case <-lost:
			return false
		}
	}
	e.busy.Store(true)
	if e.d.Lost() { // its lane may have rested it just before
		e.rest()
		return false
	}
	return true
}

var _ delayqueue.Resumer = (*entry)(nil)

// isolate has a suspect run alone: it takes the turn, and notes that it does.
func (c *caution) isolate(e *entry) {
	switch c.turn {
	case noTurn:
		c.take()
	case awaited:
	case held:
		if c.solo == nil {
			next := c.said()
			next.alone = c.l.track.offset(e.number)
			c.write(next)
		}
	}
}

// take asks for the client's turn.
func (c *caution) take() {
	c.turn = awaited
	turn, gate := c.l.r.client.turn, &c.l.r.sub.Gate
	go func() {
		if turn.Take(c.ctx, gate) && !c.post(func() { c.turn, c.took = held, time.Now() }) {
			turn.Give()
		}
	}()
}

// yield ends the turn, once it is noted that nothing runs alone any more, or lets the
// next suspect follow in the same turn: the commit that notes it is the same.
func (c *caution) yield(now time.Time) {
	c.waits = slices.DeleteFunc(c.waits, func(w waiting) bool { return w.e.d.Lost() })
	if len(c.waits) > 0 && c.solo == nil && c.writing == nil {
		e := c.waits[0].e
		switch {
		case c.blind || c.turn == held && c.note.alone == c.l.track.offset(e.number):
			if c.turn == held {
				c.solo = e
				e.busy.Store(true)
			}
			close(c.waits[0].back)
			c.waits = c.waits[1:]
		default:
			c.isolate(e)
		}
		return
	}
	if c.turn != held || c.solo != nil || c.writing != nil {
		return
	}
	l := c.l
	follows := !l.r.sub.Gate.Closed() && now.Sub(c.took) < linger && l.next == nil && l.choose() && c.suspected(l.chosen)
	switch {
	case follows:
	case c.note.alone >= 0 && !c.blind:
		next := c.said()
		next.alone = -1
		c.write(next)
	default:
		c.turn = noTurn
		l.r.client.turn.Give()
	}
}

package kafka

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// What a lane does where a key waits for its failures, see lines. A record of the
// origin asks when it is chosen, in the order of the log, so that no more of them
// are in a line than may be in flight; one that has waited asks when it is due.

// share has a lane decide with the others of its partition.
func (l *lane) share(ls *lines) {
	l.lines, l.behind = ls, make(map[*entry]struct{})
	l.box.bell = make(chan struct{}, 1)
}

// line gives a record of the origin its card.
func (l *lane) line(e *entry) {
	m := e.rec.ConsumerMessage
	if m.Key == nil {
		return
	}
	e.card = e.room
	*e.card = card{place: place{maphash.Bytes(seed, m.Key), m.Offset}, at: originTime(m.Timestamp), first: true, box: &l.box, entry: e}
}

// waitLine gives a record that waits its card. m still has its own offset.
func (l *lane) waitLine(e *entry, stay *delayqueue.Stay) {
	m := e.rec.ConsumerMessage
	c, ok := orderedCard(m, stay, l.partition)
	if !ok {
		return
	}
	c.counted, c.box, c.entry = m.Offset < l.lines.ends[l.topic], &l.box, e
	e.card = e.room
	*e.card = c
	l.lines.seen(e.card, stay.State.Due)
}

// admit asks for a record of the origin. It is false when the record does not begin now.
func (l *lane) admit(e *entry) bool {
	if e.card == nil || l.waits != nil {
		return true
	}
	return l.ask(e)
}

// arrived sends on an entry that has waited long enough.
func (l *lane) arrived(e *entry) {
	switch {
	case e.then == toHandler:
		if !l.ask(e) {
			return
		}
	case l.lines.stale(e.card):
		l.drop(e)
		return
	}
	l.ready.Push(e)
}

// ask decides about an entry of the backlog. It is true for one that may go on now;
// the others are behind, in the hold, or settled.
func (l *lane) ask(e *entry) bool {
	now := time.Now()
	v, until := l.lines.ask(e.card, now, l.hold != nil && l.hold.Len() < holdSoft/8)
	switch v {
	case waits:
		l.behind[e] = struct{}{}
		return false
	case parks:
		e.then, e.until = toLine, redeliver.CeilMilli(until.UTC())
	case stays:
		l.backlog--
		l.hold.Put(until, e)
		return false
	case dropped:
		l.drop(e)
		return false
	case free:
		e.card = nil
	case runs:
	}
	return true
}

// drop settles an entry of the backlog that is a copy of what has gone further.
func (l *lane) drop(e *entry) {
	l.backlog--
	l.goesOn(e)
	l.settle(e)
}

// makeRoom has what waits in hand for a handler that takes long, and holds up the
// lane, written to a level for a short while: other keys must not wait for it.
func (l *lane) makeRoom() {
	span := spanFactor * l.r.client.cfg.MaxInFlight
	switch {
	case l.hold != nil && l.backlog < readAhead && !l.heavy(): // there is room
		return
	case l.hold == nil && (l.ready.Empty() || l.reach(l.ready.Peek())):
		return
	}
	until := redeliver.CeilMilli(time.Now().UTC().Add(recovery))
	for e := range l.behind {
		if l.hold == nil && int(e.number-l.track.first) >= span/2 {
			continue // it holds up nothing yet
		}
		if l.lines.leave(e.card) {
			delete(l.behind, e)
			e.then, e.until = toLine, until
			l.freed.push(e)
		}
	}
}

// moveOn has what is held below a record that was handed out written to a level
// once more. Where a key waits for its failures, records are not in the order in
// which they come due, and what is left below would bring back all above.
func (l *lane) moveOn() {
	for {
		e, ok := l.hold.Pop(forever)
		if !ok {
			return
		}
		if !l.owed(e) {
			continue
		}
		l.backlog++
		if e.card != nil && l.lines.stale(e.card) {
			l.drop(e)
			continue
		}
		e.then, e.until = toLine, e.state.Due
		l.ready.Push(e)
	}
}

// forever is when everything is due.
var forever = time.Unix(1<<40, 0)

// collect asks again for those whose line has moved.
func (l *lane) collect() (busy bool) {
	select { // nil, without lines
	case <-l.box.bell:
		return l.collected()
	default:
		return false
	}
}

// collected does so after the bell.
func (l *lane) collected() (busy bool) {
	if l.lines == nil {
		return false
	}
	for _, c := range l.lines.collect(&l.box) {
		e := c.entry
		if _, ok := l.behind[e]; !ok {
			continue // it was given up meanwhile
		}
		delete(l.behind, e)
		if l.draining && l.give(e) {
			continue
		}
		if l.ask(e) {
			l.freed.push(e)
		}
		busy = true
	}
	return busy
}

// left tells the lines what became of an entry that is out of flight.
func (l *lane) left(e *entry, how delayqueue.Ending) {
	switch {
	case how == delayqueue.Abandoned:
		l.lines.giveUp(e.card)
	case e.then != toHandler && e.went.buried:
		l.lines.bury(e.card)
	case e.then == toLevel:
		l.lines.hopped(e.card)
	case e.then == toLine || e.d.Forwarded():
		if e.went.parked {
			l.lines.park(e.card, e.went.attempts, e.went.due)
			return
		}
		fallthrough
	default:
		l.lines.done(e.card)
	}
}

// bounded tells whether the partition's origin must wait: the levels hold as much
// as they may. What stands below something that waits on a level, and was read
// again, goes on, because that may wait for it.
func (l *lane) bounded() bool {
	if l.lines == nil || l.waits != nil || l.draining {
		return false
	}
	n, most := l.lines.behind.Load(), int64(l.r.client.cfg.MaxParked)
	full := n >= most && l.ready.Peek().rec.Offset > l.lines.highest()
	if full != l.full {
		l.full = full
		change := redeliver.ChangePartitionGoesOn
		if full {
			change = redeliver.ChangePartitionFull
		}
		l.r.tell(change, fmt.Sprintf("%s/%d: %d messages wait behind those that failed before them, or have failed; MaxParked is %d", l.topic, l.partition, n, most), nil)
	}
	return full
}

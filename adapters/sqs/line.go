package sqs

import (
	"slices"
	"time"
)

// line is the messages of one group of a FIFO queue that are in hand: the first
// one runs or waits, the others stand behind it, unrun.
type line struct{ items []*ticket }

// enter puts a message into the line of its group. It is true when the message is
// the first and may run.
func (l *lane) enter(t *ticket) bool {
	if t.group == "" {
		return true
	}
	g := l.lines[t.group]
	if g == nil {
		g = &line{}
		l.lines[t.group] = g
	}
	g.items = append(g.items, t)
	return len(g.items) == 1
}

// step takes the first message out of its line, and lets the next one run.
func (l *lane) step(t *ticket) {
	g := l.lines[t.group]
	if t.group == "" || g == nil || len(g.items) == 0 || g.items[0] != t {
		return
	}
	g.items = g.items[1:]
	if len(g.items) == 0 {
		delete(l.lines, t.group)
		return
	}
	if e := g.items[0].entry; e != nil {
		l.admit(e)
	}
}

// breakLine gives back all that stands behind a lost message, the last first: SQS
// shows no message of a group while another of it is hidden, so that they come
// again in their order.
func (l *lane) breakLine(lost *ticket) {
	g := l.lines[lost.group]
	if lost.group == "" || g == nil {
		return
	}
	at := slices.Index(g.items, lost)
	if at < 0 {
		return
	}
	behind := g.items[at+1:]
	g.items = g.items[:at]
	if at == 0 {
		delete(l.lines, lost.group)
	}
	for _, t := range slices.Backward(behind) {
		if l.tickets[t.id] == t {
			l.handBack(t, time.Time{})
		}
	}
}

// handBack gives an unrun message back, which others see at a time, or now.
func (l *lane) handBack(t *ticket, at time.Time) {
	l.r.client.turn.Known.Add(t.id)
	if e := t.entry; e != nil && e.state != nil && e.inPlace {
		l.r.client.memory.Put(t.id, e.state)
	}
	t.entry = nil
	t.End(errLost) // what lies ready sees it
	l.drop(t)
	l.backing.Add(1)
	l.hider.giveBack(t, at, func(error) { // what fails comes back by itself
		l.groups.look()
		l.backing.Done()
	})
}

package sqs

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// holdMost is how long a message that came back waits here for its time: SQS
// counts delays in whole seconds, and only the rest of one is left.
const holdMost = time.Second

// read takes a received message apart: what is the user's, the state that it
// brings, or that this process remembers, and what is to be done with it.
func (e *entry) read(m *types.Message) {
	l := e.lane
	var c *carried
	e.rec, c = newRecord(m, l.r.layout.main.name, l.r.client.cfg.Marshaler, l.r.client.cfg.StateKeys)
	e.rec.entry = e
	known := l.r.client.turn.Known.Of(e.ticket.id)
	came := max(0, received(m)-1-known) // before now, and nobody knows of an answer
	remembered := l.r.client.memory.Take(e.ticket.id)
	switch {
	case remembered != nil:
		e.state, e.inPlace = remembered, true
	case c != nil:
		e.believe(c)
	}
	if l.kind == suspectQueue {
		e.times = max(0, came-int(l.unsure.Load()))
		if e.times >= l.r.layout.policy.MaxCrashes {
			e.then = toDLQ
		}
		return
	}
	if remembered == nil && came > 0 && l.countsReceives(e) {
		e.recall(came)
	}
	left := time.Duration(0)
	if e.state != nil {
		left = e.state.Due.Sub(e.arrived)
	}
	switch {
	case left <= 0:
		if came >= suspicion {
			e.then = toSuspects
		}
	case left <= holdMost || e.inPlace || l.queue.fifo:
		e.until = e.state.Due
		e.inPlace = e.inPlace || l.queue.fifo
	default:
		e.then = toWait
	}
}

// countsReceives tells whether a message waits in the hands of a process, which
// may have died: then its receives are all that is left of its attempts.
func (l *lane) countsReceives(e *entry) bool {
	if l.queue.fifo {
		return true
	}
	st := redeliver.State{ID: idOf(&e.rec.native), Group: l.queue.name, Origin: l.queue.name, Attempts: 1, Due: e.arrived, FirstFailed: e.arrived, LastFailed: e.arrived}
	_, fits := e.rec.waiting(&st, l.queue.limit)
	return !fits
}

// recall takes the receives of a message whose state nobody knows for attempts.
func (e *entry) recall(came int) {
	if e.state == nil {
		m, queue := &e.rec.native, e.lane.queue.name
		e.state = &redeliver.State{ID: idOf(m), Group: queue, Origin: queue, Source: redeliver.Source{Timestamp: sent(m)}}
	}
	e.state.Attempts = min(e.state.Attempts+came, redeliver.MaxAttempts)
	if e.state.Due.IsZero() {
		e.state.Due = e.arrived.UTC().Truncate(time.Millisecond)
	}
	e.inPlace = true
}

// believe reads the state that a message brought in an attribute of ours.
func (e *entry) believe(c *carried) {
	r := e.lane.r
	queue, m := r.layout.main.name, &e.rec.native
	stay := delayqueue.Arrive(&delayqueue.Arrival{Group: queue, Origin: queue, Written: e.arrived, Now: e.arrived},
		c.headers, func() string { return idOf(m) })
	st := stay.State
	r.sub.Met(st)
	if len(stay.Findings) > 0 {
		r.sub.Tell(redeliver.HeadersIgnored{Topic: e.lane.queue.name, ID: st.ID, Findings: stay.Findings})
	}
	if st.Source.Timestamp.IsZero() { // a delayed publish
		st.Source.Timestamp = sent(m)
	}
	e.rec.first(c, st)
	e.state = st
}

// stay has a message wait in hand, under the ticket that it has. It comes as
// another delivery when it is due.
func (l *lane) stay(e *entry, st *redeliver.State) {
	t := e.ticket
	if l.tickets[t.id] != t || t.entry != e {
		return // it was lost meanwhile
	}
	next := &entry{lane: l, ticket: t, rec: e.rec, arrived: e.arrived, until: st.Due, inPlace: true, state: st}
	next.rec.entry = next
	t.entry = next
	l.depart(e)
	if g := l.lines[t.group]; g != nil { // what stands behind it is hidden for as long
		for _, behind := range g.items[1:] {
			behind.keep(st.Due)
		}
	}
	if l.stopping {
		l.handBack(t, st.Due)
		return
	}
	l.wait(next, st.Due)
}

// wait keeps an entry here until a time. What is in hand is bounded by the same
// number as the hold, which has room therefore; should it have none, others may
// have the message at that time.
func (l *lane) wait(e *entry, at time.Time) bool {
	if l.hold.Put(at, e) {
		return true
	}
	l.handBack(e.ticket, at)
	return false
}

// sizeOf is what SQS counts of a message.
func sizeOf(m *types.Message) int {
	n := len(aws.ToString(m.Body))
	for name, v := range m.MessageAttributes {
		n += attributeSize(name, v)
	}
	return n
}

// memoryMost is of how many messages it is known that they have failed and wait
// in hand.
const memoryMost = 100_000

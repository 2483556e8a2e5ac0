package sqs

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/driver"
)

const (
	// maxHold is how long a message that came back waits here for its time: SQS
	// counts delays in whole seconds, and only the rest of one is left.
	maxHold = time.Second

	// SQS counts receives: for crashes as for shutdowns, lost answers and outages. So the count charges nobody. What has
	// come back maxReturns times is written anew, which begins the count anew; after maxCopies of that it is a suspect.
	// A message that cannot be written anew is one after maxReturnsInPlace.
	maxReturns        = 5
	maxCopies         = 2
	maxReturnsInPlace = maxReturns * (1 + maxCopies)
	// minReceives is the least maxReceiveCount of a queue's own RedrivePolicy.
	minReceives = 3
)

// arrive takes a received message apart: what is the user's, the state that it brings, or that this process remembers, and what
// is to be done with it. first says that no other message of its group is in hand.
func (s *source) arrive(d *delivery, m *types.Message, at time.Time, first bool) {
	var c *carried
	d.record, c = newRecord(m, s.layout.main.name, s.client.cfg.Marshaler, s.client.cfg.StateKeys)
	found := d.readDeadLetter(s.layout.main.name, s.client.cfg.Names)
	switch {
	case d.kept != nil:
		d.state = d.kept
	case c != nil:
		s.believe(d, c, at)
	default:
		s.reportStrangers(d, found)
	}
	if s.kind == suspectQueue {
		d.crashes = max(0, received(m)-1-int(s.unheard.Load()))
		if d.crashes >= s.layout.policy.MaxCrashes {
			d.step = driver.Bury
		}
		return
	}
	left := time.Duration(0)
	if d.state != nil {
		left = d.state.Due.Sub(at)
	}
	inPlace := s.queue.fifo || d.kept != nil
	switch {
	case left > 0 && inPlace:
		d.hold = true
		d.keep(d.state.Due)
	case left > maxHold:
		d.step = driver.Hop
	case received(m) > s.renewAfter && first:
		s.renew(d, received(m), inPlace)
	case left > 0:
		d.hold = true
	}
}

// receiveLimits are after how many receives a message of a queue is written anew, or, in its place, is a suspect: before SQS takes
// it away.
func (q *queue) receiveLimits() (renew, isolate int) {
	if _, most, ok := q.redrivePolicy(); ok {
		return min(maxReturns, most-1), min(maxReturnsInPlace, most-1)
	}
	return maxReturns, maxReturnsInPlace
}

// renew decides what is done with a message that has come back often. Behind the first of a FIFO group nothing has run, so that
// is asked about the first alone.
func (s *source) renew(d *delivery, receives int, inPlace bool) {
	switch {
	case !inPlace && s.leavesRoom(d) && d.copies < maxCopies:
		d.step, d.renews = driver.Hop, true
	case !inPlace && d.copies >= maxCopies:
		d.step = driver.Isolate
	case receives > s.isolateAfter:
		d.step = driver.Isolate
	}
}

// leavesRoom reports whether a copy with our state fits into the queue.
func (s *source) leavesRoom(d *delivery) bool {
	st := s.stateOf(d)
	st.Due = time.Now()
	_, ok := d.waiting(&st, s.layout.main.limit)
	return ok
}

// believe reads the state that a message brought in an attribute of ours.
func (s *source) believe(d *delivery, c *carried, at time.Time) {
	queue := s.layout.main.name
	stay := delayqueue.Arrive(&delayqueue.Arrival{Group: queue, Origin: queue, Written: at, Now: at},
		c.headers, d.stateID)
	st := stay.State
	s.sub.Met(st)
	if len(stay.Findings) > 0 {
		s.sub.Emit(redeliver.HeadersIgnored{Topic: s.queue.name, ID: st.ID, Findings: stay.Findings})
	}
	if st.Source.Timestamp.IsZero() { // a delayed publish
		st.Source.Timestamp = sent(&d.native)
	}
	st.DeadLetter, st.Expires = d.deadLetter, d.ownEnd()
	d.first(c, st)
	d.copies = c.copies
	d.state = st
}

// reportStrangers reports attributes of a first delivery that are called like ours, and what was found before.
func (s *source) reportStrangers(d *delivery, found []redeliver.Finding) {
	if s.sub.Sink == nil {
		return
	}
	if found = append(found, strangers(&d.native)...); found != nil {
		s.sub.Emit(redeliver.HeadersIgnored{Topic: s.queue.name, ID: d.stateID(), Findings: found})
	}
}

// stateOf is the state of a message before its next attempt, as far as its record and this process tell.
func (s *source) stateOf(d *delivery) redeliver.State {
	if d.state != nil {
		return *d.state
	}
	queue := s.layout.main.name
	return redeliver.State{
		ID: d.stateID(), Group: queue, Origin: queue, Source: redeliver.Source{Timestamp: sent(&d.native)}, DeadLetter: d.deadLetter,
		Expires: d.ownEnd(),
	}
}

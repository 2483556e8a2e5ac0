package sqs

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/notes"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/statekeys"
)

const (
	// maxHold is the longest remaining wait for which this process holds a message of a standard queue. SQS counts
	// delays in whole seconds.
	maxHold = time.Second

	// SQS counts a receive after a crash, but also after a shutdown, a lost answer or an outage, so a high count does
	// not prove a crash. A message that came back maxReturns times is rewritten, which resets the count. After
	// maxCopies rewrites it is a suspect. A message that cannot be rewritten is a suspect after maxReturnsInPlace
	// returns. In a FIFO group, receives of a message that waits behind another one count too, so a message may become
	// a suspect without having run.
	maxReturns        = 5
	maxCopies         = 2
	maxReturnsInPlace = maxReturns * (1 + maxCopies)
	// minReceives is the lowest allowed maxReceiveCount of a queue's own RedrivePolicy.
	minReceives = 3
)

// readDelivery reads a received message: the user's part, the state that it brings or that this process remembers,
// and the next step.
func (s *source) readDelivery(d *delivery, m *types.Message, at time.Time) {
	var c *wire.Carried
	d.Record, c = wire.NewRecord(m, s.layout.main.Name, statekeys.Waiting, s.client.cfg.StateKeys)
	found := d.ReadDeadLetter(s.layout.main.Name, s.client.cfg.Names.dlq)
	switch {
	case d.keptState != nil:
		d.state = d.keptState
		if d.noted {
			s.completeState(d, at)
		}
		if c != nil {
			d.SetFirstDelivery(c, d.state)
		}
	case c != nil:
		s.readState(d, c, at)
	default:
		s.reportForeignAttributes(d, found)
	}
	if s.readsSuspects() {
		d.crashes = max(0, wire.ReceiveCountOf(m)-1-s.lostSuspects.Count(d.id)-s.lostReceives.since(wire.SentAt(m)))
		if d.crashes >= s.layout.policy.MaxCrashes {
			d.step = driver.StepDeadLetter
		}
		return
	}
	left := time.Duration(0)
	if d.state != nil {
		left = d.state.Due.Sub(at)
	}
	inPlace := s.queue.FIFO || d.keptState != nil
	switch {
	case left > 0 && inPlace:
		d.hold = true
		d.keepUntil(d.state.Due)
	case left > maxHold:
		d.step = driver.StepHop
	case left > 0: // before limitReturns: suspects do not wait
		d.hold = true
	case wire.ReceiveCountOf(m) > s.rewriteAfter && d.first:
		s.limitReturns(d, wire.ReceiveCountOf(m), inPlace)
	}
}

// completeState adds to the state in a note what the message itself says.
func (s *source) completeState(d *delivery, at time.Time) {
	st := d.state
	st.DeadLetter, st.Expires = d.DeadLetter, d.OwnExpiry()
	if latest := at.Add(maxVisibility); st.Due.After(latest) { // no policy waits longer
		st.Due = latest
	}
	s.sub.CheckPolicyOf(st)
}

// findTimeout bounds the search for the notes of messages that came.
const findTimeout = 10 * time.Second

// findNotes looks for the attempts of messages that others have received before.
func (s *source) findNotes(all []*delivery) {
	var ids []string
	for _, d := range all {
		if d.unknown {
			ids = append(ids, d.id)
		}
	}
	if s.notes == nil || len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.pollCtx, findTimeout)
	defer cancel()
	found, err := s.notes.Find(ctx, ids)
	if err != nil && s.pollCtx.Err() == nil {
		s.r.reportInMemory(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range all {
		st, ok := found[d.id]
		switch {
		case !ok:
		case d.gone:
			s.notes.Release(d.id, 0)
		case d.keptState == nil || notes.Compare(d.keptState, &st) <= 0:
			d.keptState, d.noted = &st, true
		}
		d.unknown = d.unknown && err != nil
	}
}

// endNote deletes the note of a message that is deleted. After an error others may get the message, so it gives back the note.
func (s *source) endNote(d *delivery, err error) {
	switch {
	case s.notes == nil:
	case err == nil:
		s.notes.Remove(d.id)
	default:
		s.notes.Release(d.id, 0)
	}
}

// receiveLimits returns the numbers of receives after which a message of a queue is rewritten, or becomes a suspect
// in place. Both come before SQS itself moves the message away.
func receiveLimits(q *api.Queue) (rewrite, isolate int) {
	if _, maxReceives, ok := q.RedrivePolicy(); ok {
		return min(maxReturns, maxReceives-1), min(maxReturnsInPlace, maxReceives-1)
	}
	return maxReturns, maxReturnsInPlace
}

// limitReturns decides the step of a message that came back often. In a FIFO group it is only for the first message,
// because the ones behind it have not run.
func (s *source) limitReturns(d *delivery, receives int, inPlace bool) {
	switch {
	case !inPlace && s.hasRoomForState(d) && d.Copies < maxCopies:
		d.step, d.rewrite = driver.StepHop, true
	case !inPlace && d.Copies >= maxCopies:
		d.step = driver.StepIsolate
	case receives > s.isolateAfter:
		d.step = driver.StepIsolate
	}
}

// hasRoomForState reports whether a rewritten copy fits into the queue.
func (s *source) hasRoomForState(d *delivery) bool {
	st := s.stateOf(d)
	st.Due = time.Now()
	_, ok := d.RewrittenCopy(&st, s.layout.main.MaxSize)
	return ok
}

// readState reads the state that a message brought in StateAttribute.
func (s *source) readState(d *delivery, c *wire.Carried, at time.Time) {
	queue := s.layout.main.Name
	stay := delayqueue.Arrive(&delayqueue.Arrival{Group: queue, Origin: queue, Written: at, Now: at},
		c.Headers, d.StateID)
	st := stay.State
	s.sub.CheckPolicyOf(st)
	if len(stay.Findings) > 0 {
		s.sub.Emit(redeliver.HeadersIgnored{Topic: s.queue.Name, ID: st.ID, Findings: stay.Findings})
	}
	if st.Source.Timestamp.IsZero() { // a delayed publish
		st.Source.Timestamp = wire.SentAt(&d.Native)
	}
	if s.queue.FIFO { // a forged due time must not stop the messages behind it
		if sent := wire.SentAt(&d.Native); !sent.IsZero() && st.Due.After(sent.Add(maxVisibility)) {
			st.Due = sent.Add(maxVisibility)
		}
	}
	st.DeadLetter, st.Expires = d.DeadLetter, d.OwnExpiry()
	d.SetFirstDelivery(c, st)
	d.state = st
}

// reportForeignAttributes reports attributes of a first delivery that have redeliver's names, and earlier findings.
func (s *source) reportForeignAttributes(d *delivery, found []redeliver.Finding) {
	if s.sub.Sink == nil {
		return
	}
	if found = append(found, wire.ForeignAttributes(&d.Native)...); found != nil {
		s.sub.Emit(redeliver.HeadersIgnored{Topic: s.queue.Name, ID: d.StateID(), Findings: found})
	}
}

// stateOf returns the state of a message before its next attempt, as far as its record and this process know it.
func (s *source) stateOf(d *delivery) redeliver.State {
	if d.state != nil {
		return *d.state
	}
	queue := s.layout.main.Name
	return redeliver.State{
		ID: d.StateID(), Group: queue, Origin: queue, Source: redeliver.Source{Timestamp: wire.SentAt(&d.Native)}, DeadLetter: d.DeadLetter,
		Expires: d.OwnExpiry(),
	}
}

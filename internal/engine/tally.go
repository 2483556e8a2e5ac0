package engine

import (
	"time"

	"github.com/redeliver/redeliver"
)

// successSinks are who is told of messages that succeed at once, which are as many as there
// are messages: who counts, and who hears events.
type successSinks struct {
	tally     redeliver.Tally     // nil for none
	rest      redeliver.Sink      // nil for nobody
	selective redeliver.Selective // rest, where it is one
}

// successSinks are asked for with the first message. There must be a sink.
func (s *Subscription) successSinks() *successSinks {
	if h := s.resolvedSinks.Load(); h != nil {
		return h
	}
	h := &successSinks{rest: s.Sink}
	if counting, ok := s.Sink.(redeliver.Tallying); ok {
		func() {
			defer func() { _ = recover() }() // as in Tell
			h.tally, h.rest = counting.Tally(s.Sink, s.Origin, s.Group)
		}()
		if h.tally == nil {
			h.rest = s.Sink
		}
	}
	h.selective, _ = h.rest.(redeliver.Selective)
	s.resolvedSinks.CompareAndSwap(nil, h)
	return s.resolvedSinks.Load()
}

// wants tells whether somebody is to be told of an event of e's type. Where nobody says
// beforehand what he wants, everybody does.
func (h *successSinks) wants(e redeliver.Event) (want bool) {
	if h.selective == nil {
		return h.rest != nil
	}
	defer func() { _ = recover() }() // as in Tell
	return h.selective.Wants(e)
}

// WantsSuccesses tells whether an event is made of a message that succeeds at once: then
// its State is asked for, with an id that may have to be composed.
func (s *Subscription) WantsSuccesses() bool {
	if s.Sink == nil {
		return false
	}
	return s.successSinks().wants(redeliver.Attempted{})
}

// Committed tells the sink that a message was handled and acked.
func (s *Subscription) Committed(d *Delivery) {
	if s.Sink == nil {
		return
	}
	h, to := s.successSinks(), s.Sink
	if h.tally != nil && d.isFirst() {
		h.committed()
		to = h.rest
		if !h.wants(redeliver.Committed{}) {
			return
		}
	} else if !s.Wants(redeliver.Committed{}) {
		return
	}
	emitCommitted(to, d)
}

// emitCommitted and tellAttempted stand apart because events are large: in the frames of
// those who call them they would make a message in BenchmarkObserved/prometheus of
// package observe/otel three times as dear.
func emitCommitted(to redeliver.Sink, d *Delivery) {
	emit(to, redeliver.Committed{State: d.State()})
}

// attempted tells the sink, of which there must be one, that an attempt has ended: with
// err, after what the clock of attempts had at began.
func (s *Subscription) attempted(d *Delivery, err error, began time.Duration) {
	h, to := s.successSinks(), s.Sink
	if err == nil && h.tally != nil && d.isFirst() {
		h.attempted(time.Since(epoch) - began)
		to = h.rest
		if !h.wants(redeliver.Attempted{}) {
			return
		}
	} else if !s.Wants(redeliver.Attempted{}) {
		return
	}
	emitAttempted(to, d, err, began)
}

func emitAttempted(to redeliver.Sink, d *Delivery, err error, began time.Duration) {
	// In this order: who is held up between two looks at clocks takes the attempt for
	// later than it was, and not for earlier than it may be.
	took := time.Since(epoch) - began
	now := time.Now()
	emit(to, redeliver.Attempted{State: d.State(), Err: err, Start: now.Add(-took), Took: took})
}

// The tallies are called as sinks are, see Tell.

func (h *successSinks) committed() {
	defer func() { _ = recover() }()
	h.tally.Committed()
}

func (h *successSinks) attempted(took time.Duration) {
	defer func() { _ = recover() }()
	h.tally.Attempted(took)
}

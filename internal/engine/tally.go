package engine

import (
	"time"

	"github.com/redeliver/redeliver"
)

// hearers are who is told of messages that succeed at once, which are as many as there
// are messages: who counts, and who hears events.
type hearers struct {
	tally redeliver.Tally     // nil for none
	rest  redeliver.Sink      // nil for nobody
	asks  redeliver.Selective // rest, where it is one
}

// hearers are asked for with the first message. There must be a sink.
func (s *Subscription) hearers() *hearers {
	if h := s.heard.Load(); h != nil {
		return h
	}
	h := &hearers{rest: s.Sink}
	if counting, ok := s.Sink.(redeliver.Tallying); ok {
		func() {
			defer func() { _ = recover() }() // as in Tell
			h.tally, h.rest = counting.Tally(s.Sink, s.Origin, s.Group)
		}()
		if h.tally == nil {
			h.rest = s.Sink
		}
	}
	h.asks, _ = h.rest.(redeliver.Selective)
	s.heard.CompareAndSwap(nil, h)
	return s.heard.Load()
}

// want tells whether somebody is to be told of an event of e's type. Where nobody says
// beforehand what he wants, everybody does.
func (h *hearers) want(e redeliver.Event) (want bool) {
	if h.asks == nil {
		return h.rest != nil
	}
	defer func() { _ = recover() }() // as in Tell
	return h.asks.Wants(e)
}

// WantsSuccesses tells whether an event is made of a message that succeeds at once: then
// its State is asked for, with an id that may have to be composed.
func (s *Subscription) WantsSuccesses() bool {
	if s.Sink == nil {
		return false
	}
	return s.hearers().want(redeliver.Attempted{})
}

// Committed tells the sink that a message was handled and acked.
func (s *Subscription) Committed(d *Delivery) {
	if s.Sink == nil {
		return
	}
	h, to := s.hearers(), s.Sink
	if h.tally != nil && d.isFirst() {
		h.committed()
		to = h.rest
		if !h.want(redeliver.Committed{}) {
			return
		}
	} else if !s.Wants(redeliver.Committed{}) {
		return
	}
	tellCommitted(to, d)
}

// tellCommitted and tellAttempted stand apart because events are large: in the frames of
// those who call them they would make a message in BenchmarkObserved/prometheus of
// package observe/otel three times as dear.
func tellCommitted(to redeliver.Sink, d *Delivery) {
	tell(to, redeliver.Committed{State: d.State()})
}

// attempted tells the sink, of which there must be one, that an attempt has ended: with
// err, after what the clock of attempts had at began.
func (s *Subscription) attempted(d *Delivery, err error, began time.Duration) {
	h, to := s.hearers(), s.Sink
	if err == nil && h.tally != nil && d.isFirst() {
		h.attempted(time.Since(epoch) - began)
		to = h.rest
		if !h.want(redeliver.Attempted{}) {
			return
		}
	} else if !s.Wants(redeliver.Attempted{}) {
		return
	}
	tellAttempted(to, d, err, began)
}

func tellAttempted(to redeliver.Sink, d *Delivery, err error, began time.Duration) {
	// In this order: who is held up between two looks at clocks takes the attempt for
	// later than it was, and not for earlier than it may be.
	took := time.Since(epoch) - began
	now := time.Now()
	tell(to, redeliver.Attempted{State: d.State(), Err: err, Start: now.Add(-took), Took: took})
}

// The tallies are called as sinks are, see Tell.

func (h *hearers) committed() {
	defer func() { _ = recover() }()
	h.tally.Committed()
}

func (h *hearers) attempted(took time.Duration) {
	defer func() { _ = recover() }()
	h.tally.Attempted(took)
}

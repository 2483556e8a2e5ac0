package engine

import (
	"time"

	"github.com/redeliver/redeliver"
)

// successSinks are the parts of the sink that handle messages that succeed at the first attempt. Nearly all messages do, so
// most sinks only count them.
type successSinks struct {
	tally     redeliver.Counter       // nil for none
	rest      redeliver.Sink          // gets events; nil for none
	selective redeliver.FilteringSink // rest, if it is a FilteringSink; otherwise nil
}

// successSinks returns the parts of the sink, which it finds at the first call. The subscription must have a sink.
func (s *Subscription) successSinks() *successSinks {
	if h := s.resolvedSinks.Load(); h != nil {
		return h
	}
	h := &successSinks{rest: s.Sink}
	if counting, ok := s.Sink.(redeliver.CountingSink); ok {
		func() {
			defer func() { _ = recover() }() // as in Emit
			h.tally, h.rest = counting.Counter(s.Sink, s.Origin, s.Group)
		}()
		if h.tally == nil {
			h.rest = s.Sink
		}
	}
	h.selective, _ = h.rest.(redeliver.FilteringSink)
	s.resolvedSinks.CompareAndSwap(nil, h)
	return s.resolvedSinks.Load()
}

// wants reports whether rest wants events of e's type.
func (h *successSinks) wants(e redeliver.Event) (wants bool) {
	if h.selective == nil {
		return h.rest != nil
	}
	defer func() { _ = recover() }() // as in Emit
	return h.selective.Wants(e)
}

// WantsSuccesses reports whether the sink wants events of messages that succeed at the first attempt. Only then does an adapter
// have to make their states, and to compose their ids.
func (s *Subscription) WantsSuccesses() bool {
	if s.Sink == nil {
		return false
	}
	return s.successSinks().wants(redeliver.Attempted{})
}

// Committed reports to the sink that a message was handled and acked.
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

// emitCommitted and emitAttempted are functions of their own because events are large: in the stack frames of their callers they
// would make a message three times as expensive in observe/otel's BenchmarkObserved/prometheus.
func emitCommitted(to redeliver.Sink, d *Delivery) {
	emit(to, redeliver.Committed{State: d.State()})
}

// attempted reports to the sink, which must not be nil, that an attempt has ended with err. began is counted from epoch.
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
	// In this order, a delay between the two makes Start late, and never earlier than the attempt can have begun.
	took := time.Since(epoch) - began
	now := time.Now()
	emit(to, redeliver.Attempted{State: d.State(), Err: err, Start: now.Add(-took), Took: took})
}

// committed and attempted ignore a panic of the tally, as Emit does of a sink.

func (h *successSinks) committed() {
	defer func() { _ = recover() }()
	h.tally.Committed()
}

func (h *successSinks) attempted(took time.Duration) {
	defer func() { _ = recover() }()
	h.tally.Attempted(took)
}

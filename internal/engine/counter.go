package engine

import (
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
)

// Nearly all messages succeed at the first attempt, so most sinks only count these.

func (s *Subscription) findCounter() {
	counting, ok := s.Sink.(observe.CountingSink)
	if !ok {
		return
	}
	defer func() { _ = recover() }() // as in Emit
	s.counter, s.uncounted = counting.Counter(s.Sink, s.Origin, s.Group)
}

// reportCommitted reports to the sink that a message was handled and acked.
func (s *Subscription) reportCommitted(d *Delivery) {
	to := s.Sink
	if s.counter != nil && d.isFirst() {
		s.countCommit()
		to = s.uncounted
	}
	if wants(to, redeliver.Committed{}) {
		emitCommitted(to, d)
	}
}

// emitCommitted and emitAttempted are functions of their own because events are large: in the stack frames of their callers they
// would make a message three times as expensive in observe/otel's BenchmarkObserved/prometheus.
func emitCommitted(to redeliver.Sink, d *Delivery) {
	emit(to, redeliver.Committed{State: d.State()})
}

// reportAttempted reports to the sink that an attempt has ended with err. began is counted from epoch.
func (s *Subscription) reportAttempted(d *Delivery, err error, began time.Duration) {
	to := s.Sink
	if err == nil && s.counter != nil && d.isFirst() {
		s.countAttempt(time.Since(epoch) - began)
		to = s.uncounted
	}
	if wants(to, redeliver.Attempted{}) {
		emitAttempted(to, d, err, began)
	}
}

func emitAttempted(to redeliver.Sink, d *Delivery, err error, began time.Duration) {
	// In this order, a delay between the two makes Start late, and never earlier than the attempt can have begun.
	took := time.Since(epoch) - began
	now := time.Now()
	emit(to, redeliver.Attempted{State: d.State(), Err: err, Start: now.Add(-took), Took: took})
}

// countCommit and countAttempt ignore a panic of the counter, as Emit does of a sink.

func (s *Subscription) countCommit() {
	defer func() { _ = recover() }()
	s.counter.Committed()
}

func (s *Subscription) countAttempt(took time.Duration) {
	defer func() { _ = recover() }()
	s.counter.Attempted(took)
}

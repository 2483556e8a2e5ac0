package kafka

import (
	"context"
	"slices"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// native stands behind a reader in the place of a channel of Watermill messages:
// a handler of Kafka's own records, and those who call it. The lanes are the same.
type native struct {
	handle  func(context.Context, *sarama.ConsumerMessage) error
	workers *delayqueue.Workers[*entry]
	batches *delayqueue.BatchWorkers // in the place of both, where records are handled many at a time
}

func newNative(handle func(context.Context, *sarama.ConsumerMessage) error) *native {
	return &native{handle: handle, workers: delayqueue.NewWorkers((*entry).work)}
}

// give has a record handled soon, whose entry has a slot.
func (n *native) give(e *entry) {
	if n.batches != nil {
		e.batched = e.lane.slab.place()
		e.batched.ConsumerMessage = e.rec.ConsumerMessage
		n.batches.Give(&e.batched.place, e.d, e, len(e.rec.Value))
		return
	}
	n.workers.Give(e)
}

// close lets the goroutines end that have nothing to do.
func (n *native) close() {
	if n.batches != nil {
		n.batches.Close()
		return
	}
	n.workers.Close()
}

// work is what a worker does with an entry.
func (e *entry) work() {
	if how, ended := delayqueue.Work(e.attempt, e.d, e); ended {
		e.lane.flight.Report(e, how)
	}
}

// Handle implements [delayqueue.Task].
func (e *entry) Handle(a *delayqueue.Attempt) error {
	return e.lane.r.native.handle(a, e.rec.ConsumerMessage)
}

// Describe implements [delayqueue.Task].
func (e *entry) Describe() (redeliver.Headers, []byte) { return &e.rec, e.rec.Value }

// Answered implements [delayqueue.Task]: a record has nothing to settle it with.
func (e *entry) Answered() bool { return false }

// Expired implements [delayqueue.Task].
func (e *entry) Expired(err error) error { return err }

// Settle implements [delayqueue.Task].
func (e *entry) Settle(acked bool) {
	if !acked { // otherwise it has moved on, see Moved
		e.lane.flight.Report(e, delayqueue.Abandoned)
	}
}

// Get is the last value of a header; "" where there is none.
func (r *record) Get(name string) string {
	for _, h := range slices.Backward(r.Headers) {
		if h != nil && string(h.Key) == name {
			return string(h.Value)
		}
	}
	return ""
}

// ID implements [delayqueue.Named].
func (r *record) ID() string { return uuidOf(r.ConsumerMessage) }

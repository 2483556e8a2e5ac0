package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// tenth are the failures of the rows in which messages of a batch fail.
var tenth = failing{10, 1}

// batchKeysRow compares batches in OrderFirstAttempts, where all messages have one of a few keys, with batches without an order. A run in
// OrderFirstAttempts counts only if the first runs of each key's messages were in their order.
func batchKeysRow(keys uint64, fail failing, ratio float64) func(context.Context, *experiment) error {
	return func(ctx context.Context, e *experiment) error {
		n := e.scaled(10_000)
		e.cluster.shape = shape{keys: keys, mixed: true}
		defer func() { e.cluster.shape = shape{} }()
		e.notef("one batch at a time, MaxInFlight %d on both sides; a batch that is not full runs after 100 ms", inFlightBatches)
		return e.compare(ctx, comparison{
			ours:   []sideConfig{{side: ours, name: "OrderFirstAttempts", messages: n, ratio: ratio}},
			peer:   sideConfig{side: unordered, name: "OrderNone", messages: n},
			within: 5 * time.Minute, inFlight: inFlightBatches,
			spec: func(s *spec) {
				s.Router, s.Failing, s.Backoff = true, fail, short
				s.Batch = batchSpec{Size: 100, Timeout: 100 * time.Millisecond, Wait: 50 * time.Millisecond}
				if s.Side == ours {
					s.Batch.Keys = keys
				} else {
					s.Order = redeliver.OrderNone
				}
			},
		})
	}
}

// keyCheck checks the order in which messages of each key run for the first time.
type keyCheck struct {
	shape   shape
	swapped atomic.Int64 // messages that ran after a later one

	mu     sync.Mutex
	latest []uint64 // the highest id of each key, plus one
}

func newKeyCheck(keys uint64) *keyCheck {
	return &keyCheck{shape: shape{keys: keys, mixed: true}, latest: make([]uint64, keys)}
}

func (k *keyCheck) check(s spec, all []*middleware.BatchMessage) {
	for _, m := range all {
		if m.State().Attempts == 0 {
			k.ran(idOf(s.value(m.Record.Payload)))
		}
	}
}

// ran notes the first run of a message.
func (k *keyCheck) ran(id uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	latest := &k.latest[k.shape.keyOf(id)]
	if id < *latest {
		k.swapped.Add(1)
	}
	*latest = max(*latest, id+1)
}

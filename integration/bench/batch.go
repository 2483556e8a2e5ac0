package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// batchSpec configures the batches of a side.
type batchSpec struct {
	Size    int           `json:"size"` // 0 for none
	Timeout time.Duration `json:"timeout"`
	Timed   bool          `json:"timed"` // whether to measure how long a full batch waits
	Wait    time.Duration `json:"wait"`  // of the batch function, for all its messages together
	Keys    uint64        `json:"keys"`  // of the messages, where each key's order is checked; 0 where it is not
}

// inFlightBatches is MaxInFlight of both sides, as docs/reference/batching.md advises: (Concurrency + 1) x Size.
const inFlightBatches = 200

// batchRow compares the Router with Batch and without it. The savings of handling many messages at once belong to the
// service; here a batch does for each message what the handler does.
func batchRow(ctx context.Context, e *experiment) error {
	n := e.scaled(500_000)
	e.notef("MaxInFlight %d on both sides; a batch that is not full runs after 10 ms, so that the last one does not count as a wait", inFlightBatches)
	return e.compare(ctx, comparison{
		ours:   []sideConfig{{side: ours, name: "in batches of 100", messages: n, ratio: 1}},
		peer:   sideConfig{side: singles, name: "without Batch", messages: n},
		within: 3 * time.Minute, inFlight: inFlightBatches,
		spec: func(s *spec) {
			s.Router = true
			if s.Side == ours {
				s.Batch = batchSpec{Size: 100, Timeout: 10 * time.Millisecond}
			}
		},
	})
}

// batchLatencyRow measures how soon a batch runs after its tenth message fills it. The Timeout is longer than any of
// the waits that are measured: batches that are not full do not count.
func batchLatencyRow(ctx context.Context, e *experiment) error {
	const rate, size = 2000, 10
	d := e.lasting(20 * time.Second)
	n := int(rate * d.Seconds())
	for run := range e.options.runs {
		out, err := e.alone(ctx, run+1, single{
			drive:  func(t names) (written, error) { return e.broker.steady(ctx, t.topic, rate, d) },
			within: d + time.Minute,
		}, defaultInFlight, func(s *spec) {
			s.Messages, s.Backoff = n, ""
			s.Batch = batchSpec{Size: size, Timeout: time.Second, Timed: true}
		})
		if err != nil {
			return err
		}
		if out == nil {
			continue
		}
		if out.Full == nil || out.Full.Samples < int64(n/size*9/10) {
			e.problemf("run %d: fewer than nine of ten batches were full", run+1)
			continue
		}
		e.sayf("run %d: %d full batches ran p50 %.3f p99 %.3f max %.2f ms after their tenth message, p99 %.2f ms after that was written",
			run+1, out.Full.Samples, out.Full.P50, out.Full.P99, out.Full.Max, out.Lag.P99)
		e.add("p99 after the tenth message", "ms", atMost(5), out.Full.P99)
		e.add("p50 after the tenth message", "ms", nil, out.Full.P50)
		e.add("max after the tenth message", "ms", nil, out.Full.Max)
		e.add("p99 after the tenth was written", "ms", nil, out.Lag.P99)
		e.add("CPU of the consumer", "cores", nil, out.CPU/(out.Seconds+out.Joined))
	}
	return nil
}

// fullBatchTimer measures how long full batches wait.
type fullBatchTimer struct {
	joined     []atomic.Int64 // when a message joined its batch, by id, unix nanoseconds
	after      *samples       // from a full batch's last message to the function
	sinceWrite *samples       // from the latest write to the function
}

func newFills(messages int) (*fullBatchTimer, error) {
	after, err := newSamples(messages)
	behind, berr := newSamples(messages)
	return &fullBatchTimer{joined: make([]atomic.Int64, messages), after: after, sinceWrite: behind}, errors.Join(err, berr)
}

// handler returns the handler for the Router.
func (h *handling) handler() (message.NoPublishHandlerFunc, error) {
	b := h.spec.Batch
	if b.Size == 0 {
		return h.handle, nil
	}
	batch, err := middleware.Batch(redeliver.BatchConfig{Size: b.Size, Timeout: b.Timeout}, h.handleBatch)
	if h.full == nil || err != nil {
		return batch, err
	}
	return func(msg *message.Message) error {
		id := idOf(h.spec.value(msg.Payload))
		if id >= uint64(len(h.full.joined)) {
			return fmt.Errorf("message %d of %d", id, len(h.full.joined))
		}
		h.full.joined[id].Store(time.Now().UnixNano())
		return batch(msg)
	}, nil
}

func (h *handling) handleBatch(_ context.Context, b *middleware.MessageBatch) error {
	if h.full != nil && len(b.Messages) == h.spec.Batch.Size {
		h.full.note(h.spec, b.Messages)
	}
	if h.keys != nil {
		h.keys.check(h.spec, b.Messages)
	}
	if wait := h.spec.Batch.Wait; wait > 0 {
		time.Sleep(wait) //nolint:forbidigo // This is the handler's work.
	}
	for _, m := range b.Messages {
		if err := h.handle(m.Record); err != nil {
			m.Answer(err)
		}
	}
	return nil
}

func (f *fullBatchTimer) note(s spec, full []*middleware.BatchMessage) {
	now := time.Now()
	var last, written time.Time
	for _, m := range full {
		value := s.value(m.Record.Payload)
		if at := time.Unix(0, f.joined[idOf(value)].Load()); at.After(last) {
			last = at
		}
		if at := writtenAt(value); at.After(written) {
			written = at
		}
	}
	f.after.add(now.Sub(last))
	f.sinceWrite.add(now.Sub(written))
}

// Package hook calls your function for each dead letter, to open a ticket or write to a
// chat. For alerts, see observe/alerts.
package hook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redeliver/redeliver"
)

// defaultQueue is the default of Config.Queue.
const defaultQueue = 1000

// Config configures [OnDeadLetter].
type Config struct {
	// Queue is how many dead letters may wait for the function. If there is no room, a dead letter
	// is missed and counted, because messages never wait for the function. Default 1000.
	Queue int
	// Missed is called if a dead letter did not reach the function, or the function failed, with the reason: [ErrFull],
	// [ErrClosed], the function's error, or a redeliver.PanicError. If the queue is full, the message waits for Missed, so
	// it must be as quick as a sink. Default: they are only counted.
	Missed func(d redeliver.DeadLettered, why error)
}

// The reasons why the function was not called for a dead letter.
var (
	ErrFull   = errors.New("the hook's queue is full")
	ErrClosed = errors.New("the hook is closed")
)

// Counts has the numbers of dead letters by outcome.
type Counts struct {
	Delivered int64 // the function returned nil
	Failed    int64 // it returned an error, or panicked
	Missed    int64 // it was not called, because the queue was full or closed
}

// Hook is a [redeliver.Sink]. Give it to an adapter's Config.Sink, alone or combined with others by redeliver.Sinks. It
// is safe for concurrent use, and one Hook may serve many clients.
type Hook struct {
	deliver func(context.Context, redeliver.DeadLettered) error
	missed  func(redeliver.DeadLettered, error)

	ctx    context.Context //nolint:containedctx // of the one goroutine that calls deliver; Close ends it
	cancel context.CancelFunc
	done   chan struct{} // closed after the goroutine has ended

	mu      sync.RWMutex // write-locked only to close
	closed  bool
	letters chan redeliver.DeadLettered

	counts struct{ delivered, failed, missed atomic.Int64 }
}

// OnDeadLetter returns a sink that calls deliver for each message that goes to the DLQ, one after
// another in their order, in a goroutine of its own. deliver may be slow, because no message waits for
// it. The message is in the DLQ before the call, and stays there whatever deliver returns. Calls that
// are outstanding when the process dies are lost; the DLQ has all messages.
//
// The error in redeliver.DeadLettered is the handler's own. State.Error is its text for display: it
// is cut and has no credentials of URLs. The context ends when Close returns. Call Close at the end.
func OnDeadLetter(deliver func(ctx context.Context, d redeliver.DeadLettered) error, cfg Config) *Hook {
	if cfg.Queue <= 0 {
		cfg.Queue = defaultQueue
	}
	h := &Hook{deliver: deliver, missed: cfg.Missed, done: make(chan struct{}), letters: make(chan redeliver.DeadLettered, cfg.Queue)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	go h.run()
	return h
}

// Event implements [redeliver.Sink].
func (h *Hook) Event(e redeliver.Event) {
	d, ok := e.(redeliver.DeadLettered)
	if !ok {
		return
	}
	if why := h.enqueue(d); why != nil {
		h.miss(d, why)
	}
}

// Wants implements redeliver.FilteringSink: the hook wants only DeadLettered events.
func (h *Hook) Wants(e redeliver.Event) bool {
	_, ok := e.(redeliver.DeadLettered)
	return ok
}

func (h *Hook) enqueue(d redeliver.DeadLettered) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closed {
		return ErrClosed
	}
	select {
	case h.letters <- d:
		return nil
	default:
		return ErrFull
	}
}

func (h *Hook) miss(d redeliver.DeadLettered, why error) {
	h.counts.missed.Add(1)
	h.reportMissed(d, why)
}

// reportMissed calls Missed for a dead letter that was not delivered. A panic there must not end the process.
func (h *Hook) reportMissed(d redeliver.DeadLettered, why error) {
	if h.missed != nil {
		defer func() { _ = recover() }()
		h.missed(d, why)
	}
}

// run calls the function until the queue is closed and empty.
func (h *Hook) run() {
	defer close(h.done)
	for d := range h.letters {
		if h.ctx.Err() != nil {
			h.miss(d, ErrClosed)
			continue
		}
		if err := h.call(d); err != nil {
			h.counts.failed.Add(1)
			h.reportMissed(d, err)
			continue
		}
		h.counts.delivered.Add(1)
	}
}

func (h *Hook) call(d redeliver.DeadLettered) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &redeliver.PanicError{Value: v}
		}
	}()
	return h.deliver(h.ctx, d)
}

// Counts returns the numbers so far. Dead letters that still wait are not included.
func (h *Hook) Counts() Counts {
	return Counts{Delivered: h.counts.delivered.Load(), Failed: h.counts.failed.Load(), Missed: h.counts.missed.Load()}
}

// Close accepts no more dead letters, and returns when the function was called for those that wait. If ctx ends before that,
// the function's context ends, the dead letters that still wait are missed, and Close returns an error. It does not wait
// for a function that ignores its context. Close the adapter's client first, so that the function is called for its last dead
// letters, too. A second Close only waits.
func (h *Hook) Close(ctx context.Context) error {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.letters)
	}
	h.mu.Unlock()
	defer h.cancel()
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("hook: dead letters still wait for the function: %w", context.Cause(ctx))
	}
}

package engine

import (
	"context"
	"sync"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/contextkey"
)

// Readers are the goroutines that one subscriber's calls of Subscribe have started. Close ends them and waits for them.
// It is safe for concurrent use.
type Readers struct {
	refusal error // the answer of Begin after Close

	mu    sync.Mutex
	ctx   context.Context // ends with Close
	stop  context.CancelFunc
	group sync.WaitGroup
}

// NewReaders returns the readers of a subscriber. After Close their Begin returns refusal.
func NewReaders(refusal error) *Readers {
	r := &Readers{refusal: refusal}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// Begin calls open, and then runs in its own goroutine the reader that open returns. It returns the error of open, or
// the refusal after Close. The context of both has the values of ctx. It ends with ctx, or with Close; then its cause
// is the refusal. Close also waits for open, which must return when its context ends.
func (r *Readers) Begin(ctx context.Context, open func(context.Context) (run func(context.Context), err error)) error {
	r.mu.Lock()
	if r.ctx.Err() != nil {
		r.mu.Unlock()
		return r.refusal
	}
	r.group.Add(1) // from here on Close waits
	r.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.ctx, func() { cancel(r.refusal) })
	end := func() {
		stop()
		cancel(nil)
		r.group.Done()
	}
	run, err := open(ctx)
	if err != nil {
		end()
		return err
	}
	go func() {
		defer end()
		run(ctx)
	}()
	return nil
}

// Close ends all readers and waits until they have returned. It reports whether this was the first call.
func (r *Readers) Close() (first bool) {
	r.mu.Lock()
	first = r.ctx.Err() == nil
	r.stop()
	r.mu.Unlock()
	r.group.Wait()
	return first
}

// CheckReceiver refuses a policy with OrderBlocking if ctx, the context of Subscribe, says that a Receiver gets the messages.
func CheckReceiver(ctx context.Context, p redeliver.Policy) error {
	if ctx.Value(contextkey.Receiver{}) == nil || p.Order != redeliver.OrderBlocking {
		return nil
	}
	var ps check.Problems
	ps.Add("Policy.Order", p.Order, "is refused for a middleware.Receiver: when the invisible time of a message is over, its work may go on, so it cannot keep its place. Use a handler, or another order")
	return ps.Err()
}

// CloseAll calls shut for the subscribers of a client, all at once, and then calls last. When ctx ends first, it returns ctx's
// error and continues in the background. It ignores a ctx that has ended before the call.
func CloseAll[S any](ctx context.Context, subscribers []S, shut func(S), last func()) error {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var all sync.WaitGroup
		for _, s := range subscribers {
			all.Go(func() { shut(s) })
		}
		all.Wait()
		last()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

package engine

import (
	"context"
	"sync"
)

// Readers are what the calls of one subscriber's Subscribe have begun: they end
// with its Close, which waits for them. Safe for concurrent use.
type Readers struct {
	refusal error // of Begin after Close

	mu     sync.Mutex
	closed bool
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	group  sync.WaitGroup
}

// NewReaders makes those of a subscriber that answers with refusal when it is
// closed.
func NewReaders(refusal error) *Readers {
	r := &Readers{refusal: refusal}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// Begin has open, which may take its time, make a reader, and then has that run in
// a goroutine of its own, until it returns. What both are given has the values of ctx,
// and ends with it or with Close, whose cause is the refusal. Close waits for open:
// what that waits for must heed its context. The error is open's own, or that the
// readers are closed.
func (r *Readers) Begin(ctx context.Context, open func(context.Context) (run func(context.Context), err error)) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return r.refusal
	}
	r.group.Add(1) // Close waits for us from here on
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

// Close ends all readers and waits until they have returned. It tells whether it
// is the first to be called.
func (r *Readers) Close() (first bool) {
	r.mu.Lock()
	first, r.closed = !r.closed, true
	r.mu.Unlock()
	r.stop()
	r.group.Wait()
	return first
}

// CloseAll closes the subscribers of a client, all at once, and then does last. It
// waits for that until ctx ends, and then returns ctx's error while it goes on in
// the background. A ctx that has ended before bounds nothing.
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

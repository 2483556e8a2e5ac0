// Package wait has waits and locks that the end of a context cuts short, and contexts that outlast another.
package wait

import (
	"context"
	"time"
)

// Longer returns a context that ends d after ctx.
func Longer(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// For waits for d. It returns an error if ctx ends before.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Mutex is a lock for code that waits for others while it has the lock, such as for a broker. A [sync.Mutex] would keep its other
// callers waiting when their contexts have ended. Use [NewMutex].
type Mutex chan struct{}

// NewMutex returns a Mutex that nobody has.
func NewMutex() Mutex { return make(Mutex, 1) }

// Lock takes the lock. It returns an error if ctx ends before.
func (m Mutex) Lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unlock gives the lock back.
func (m Mutex) Unlock() { <-m }

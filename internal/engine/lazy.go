package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// LazyContext is a context that its owner can cancel, or end as a deadline does. It creates its channel at the first call of
// Done, which most handlers never call. With a context of the standard library, adapters/kafka's BenchmarkConsumeSuccess would
// make 9 allocations instead of none, and would take 3 times as long. Embed it, call Init once, and always call End.
type LazyContext struct {
	parent  context.Context
	mu      sync.Mutex
	std     *stdContext // created when it is needed
	cause   error       // not nil once ended
	expired bool        // Expire has ended the context
}

// Init sets the parent. It must be called once, before the context is shared.
func (c *LazyContext) Init(parent context.Context) { c.parent = parent }

// End cancels the context. A nil cause is context.Canceled.
func (c *LazyContext) End(cause error) {
	if cause == nil {
		cause = context.Canceled
	}
	c.finish(cause, false)
}

// Expire ends the context as a deadline does: its error, and that of the contexts below it, is context.DeadlineExceeded.
func (c *LazyContext) Expire(cause error) { c.finish(cause, true) }

func (c *LazyContext) finish(cause error, expired bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return
	}
	if c.parent.Err() != nil { // the parent ended first, so its error and cause count
		c.std, expired = c.stdLocked(), false
	}
	c.cause, c.expired = cause, expired
	if c.std != nil {
		c.std.end(cause, expired)
	}
}

// stdLocked returns std, and creates it first if necessary.
func (c *LazyContext) stdLocked() *stdContext {
	switch {
	case c.std != nil:
	case c.cause != nil: // before the parent, whose later end does not count
		c.std = newStdContext(context.WithoutCancel(c.parent))
		c.std.end(c.cause, c.expired)
	default:
		c.std = newStdContext(c.parent)
	}
	c.std.followParent()
	return c.std
}

// Done implements [context.Context].
func (c *LazyContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stdLocked().ctx.Done()
}

// Err implements [context.Context].
func (c *LazyContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.std != nil:
		return c.stdLocked().ctx.Err()
	case c.expired:
		return context.DeadlineExceeded
	case c.cause != nil:
		return context.Canceled
	default:
		return c.parent.Err()
	}
}

// Deadline implements [context.Context].
func (c *LazyContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Value implements [context.Context]. The standard library finds std with it, and so needs no goroutine to watch this context.
func (c *LazyContext) Value(key any) any {
	c.mu.Lock()
	below := c.parent
	if c.std != nil || c.cause != nil { // context.Cause looks for the cause by Value
		below = c.stdLocked().ctx
	}
	c.mu.Unlock()
	return below.Value(key)
}

// stdContext has ctx, the context of the standard library that a LazyContext delegates to, and is the parent of ctx. A cancel
// function sets only Canceled, and a deadline needs a timer. But ctx takes the error of its parent, through AfterFunc. So it can
// end with DeadlineExceeded at any time.
type stdContext struct {
	context.Context // the LazyContext's parent
	expired         atomic.Pointer[context.Context]
	cancelBelow     func()      // ends ctx with the error and cause of stdContext
	unfollow        func() bool // removes cancelBelow from the LazyContext's parent

	ctx    context.Context
	cancel context.CancelCauseFunc
}

func newStdContext(parent context.Context) *stdContext {
	s := &stdContext{Context: parent}
	s.ctx, s.cancel = context.WithCancelCause(s)
	return s
}

// end ends ctx, with DeadlineExceeded if expired is true.
func (s *stdContext) end(cause error, expired bool) {
	if !expired {
		s.cancel(cause)
		return
	}
	over, cancel := context.WithDeadlineCause(context.WithoutCancel(s.Context), time.Unix(0, 0), cause)
	cancel() // it has ended already
	s.expired.Store(&over)
	s.cancelBelow()
	s.unfollow()
}

// followParent ends ctx if the LazyContext's parent has ended. AfterFunc does that too, but a moment later, in a goroutine.
func (s *stdContext) followParent() {
	if s.Context.Err() != nil {
		s.cancelBelow()
	}
}

// never is a channel that belongs to no context of the standard library: the standard library must not find one of its
// own contexts above this one.
var never = make(chan struct{})

// AfterFunc is the method that the standard library looks for in a parent.
func (s *stdContext) AfterFunc(cancel func()) (stop func() bool) {
	s.cancelBelow, s.unfollow = cancel, context.AfterFunc(s.Context, cancel)
	return s.unfollow
}

// Done implements [context.Context]. Nobody waits for it: see AfterFunc.
func (s *stdContext) Done() <-chan struct{} { return never }

// Err implements [context.Context].
func (s *stdContext) Err() error { return s.current().Err() }

// Value implements [context.Context]. context.Cause finds the cause through it.
func (s *stdContext) Value(key any) any { return s.current().Value(key) }

func (s *stdContext) current() context.Context {
	if over := s.expired.Load(); over != nil {
		return *over
	}
	return s.Context
}

package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Lazy is a context that its owner can cancel, or end as a deadline does. It creates its channel at the first call of Done, which
// most handlers never call. Contexts of the standard library would cost 3 more allocations in middleware's
// BenchmarkRetrySuccess, and 9 instead of 0 in adapters/kafka's BenchmarkConsumeSuccess, which would take 3 times as long. Embed
// it, call Init once, and always call End.
type Lazy struct {
	parent  context.Context
	mu      sync.Mutex
	std     *standard // created when it is needed
	cause   error     // not nil once ended
	expired bool      // Expire has ended the context
}

// Init sets the parent. It must be called once, before the context is shared.
func (c *Lazy) Init(parent context.Context) { c.parent = parent }

// End cancels the context. A nil cause is context.Canceled.
func (c *Lazy) End(cause error) {
	if cause == nil {
		cause = context.Canceled
	}
	c.finish(cause, false)
}

// Expire ends the context as a deadline does: its error, and that of the contexts below it, is context.DeadlineExceeded.
func (c *Lazy) Expire(cause error) { c.finish(cause, true) }

func (c *Lazy) finish(cause error, expired bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return
	}
	if c.parent.Err() != nil { // the parent ended first, so its error and cause count
		c.std, expired = c.standardLocked(), false
	}
	c.cause, c.expired = cause, expired
	if c.std != nil {
		c.std.end(cause, expired)
	}
}

// standardLocked returns std, and creates it first if necessary.
func (c *Lazy) standardLocked() *standard {
	switch {
	case c.std != nil:
	case c.cause != nil: // before the parent, whose later end does not count
		c.std = newStandard(context.WithoutCancel(c.parent))
		c.std.end(c.cause, c.expired)
	default:
		c.std = newStandard(c.parent)
	}
	c.std.followParent()
	return c.std
}

// Done implements [context.Context].
func (c *Lazy) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.standardLocked().ctx.Done()
}

// Err implements [context.Context].
func (c *Lazy) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.std != nil:
		return c.standardLocked().ctx.Err()
	case c.expired:
		return context.DeadlineExceeded
	case c.cause != nil:
		return context.Canceled
	default:
		return c.parent.Err()
	}
}

// Deadline implements [context.Context].
func (c *Lazy) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Value implements [context.Context]. The standard library finds std with it, and so needs no goroutine to watch this context.
func (c *Lazy) Value(key any) any {
	c.mu.Lock()
	below := c.parent
	if c.std != nil || c.cause != nil { // context.Cause looks for the cause by Value
		below = c.standardLocked().ctx
	}
	c.mu.Unlock()
	return below.Value(key)
}

// standard has the context of the standard library that a Lazy delegates to. It is the parent of that context, below the Lazy's
// parent, so that ctx can end with DeadlineExceeded at any time. A cancel function of the standard library sets only Canceled, and
// a deadline ends only by a timer. But a context below a parent of another type takes that parent's error, through AfterFunc.
type standard struct {
	context.Context // the Lazy's parent
	expired         atomic.Pointer[context.Context]
	cancelBelow     func()      // ends ctx with the error and cause of standard
	unfollow        func() bool // removes cancelBelow from the Lazy's parent

	ctx    context.Context
	cancel context.CancelCauseFunc
}

func newStandard(parent context.Context) *standard {
	s := &standard{Context: parent}
	s.ctx, s.cancel = context.WithCancelCause(s)
	return s
}

// end ends ctx, with DeadlineExceeded if expired is true.
func (s *standard) end(cause error, expired bool) {
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

// followParent ends ctx if the Lazy's parent has ended. AfterFunc does that too, but a moment later, in a goroutine.
func (s *standard) followParent() {
	if s.Context.Err() != nil {
		s.cancelBelow()
	}
}

// never is a channel that belongs to no context of the standard library: the standard library must not find one of its
// own contexts above this one.
var never = make(chan struct{})

// AfterFunc is the method that the standard library looks for in a parent.
func (s *standard) AfterFunc(cancel func()) (stop func() bool) {
	s.cancelBelow, s.unfollow = cancel, context.AfterFunc(s.Context, cancel)
	return s.unfollow
}

// Done implements [context.Context]. Nobody waits for it: see AfterFunc.
func (s *standard) Done() <-chan struct{} { return never }

// Err implements [context.Context].
func (s *standard) Err() error { return s.current().Err() }

// Value implements [context.Context]. context.Cause finds the cause through it.
func (s *standard) Value(key any) any { return s.current().Value(key) }

func (s *standard) current() context.Context {
	if over := s.expired.Load(); over != nil {
		return *over
	}
	return s.Context
}

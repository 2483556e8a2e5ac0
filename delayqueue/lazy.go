package delayqueue

import (
	"context"
	"sync"
	"time"
)

// Lazy is a cancellable context that makes its channel when somebody asks for
// it: most handlers never do, and the standard library's contexts are the
// dearest part of a message otherwise. Embed it, Init it once, End it always.
type Lazy struct {
	parent   context.Context
	deadline time.Time // zero for none; only told, the owner calls End
	mu       sync.Mutex
	std      *standard // made on demand
	cause    error     // not nil once ended
}

// standard is the standard library's context that stands for a Lazy.
type standard struct {
	context.Context
	cancel context.CancelCauseFunc
}

// Init sets the context's parent, and the deadline that it tells (zero: the
// parent's). It must be called once, before anybody else sees the context.
func (c *Lazy) Init(parent context.Context, deadline time.Time) {
	c.parent, c.deadline = parent, deadline
}

// End cancels the context. A nil cause is context.Canceled.
func (c *Lazy) End(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return
	}
	if cause == nil {
		cause = context.Canceled
	}
	if c.std == nil && c.parent.Err() != nil {
		c.make(c.parent) // the parent ended first, so its error and cause stand
	}
	c.cause = cause
	if c.std != nil {
		c.std.cancel(cause)
	}
}

// make makes std below parent. The caller holds mu.
func (c *Lazy) make(parent context.Context) {
	c.std = &standard{}
	c.std.Context, c.std.cancel = context.WithCancelCause(parent)
}

// standard returns the standard library's context that stands for this one.
func (c *Lazy) standard() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.std != nil:
	case c.cause != nil: // ended before the parent, whatever became of that since
		c.make(context.WithoutCancel(c.parent))
		c.std.cancel(c.cause)
	default:
		c.make(c.parent)
	}
	return c.std.Context
}

// Done implements [context.Context].
func (c *Lazy) Done() <-chan struct{} { return c.standard().Done() }

// Err implements [context.Context].
func (c *Lazy) Err() error {
	c.mu.Lock()
	std, ended := c.std, c.cause != nil
	c.mu.Unlock()
	switch {
	case std != nil:
		return std.Err()
	case ended:
		return context.Canceled
	default:
		return c.parent.Err()
	}
}

// Deadline implements [context.Context].
func (c *Lazy) Deadline() (time.Time, bool) {
	if d, ok := c.parent.Deadline(); ok && (c.deadline.IsZero() || d.Before(c.deadline)) {
		return d, true
	}
	return c.deadline, !c.deadline.IsZero()
}

// Value implements [context.Context]. Once the channel is made, the standard
// library finds its own context here and needs no goroutine to watch this one.
func (c *Lazy) Value(key any) any {
	c.mu.Lock()
	std, ended := c.std, c.cause != nil
	c.mu.Unlock()
	switch {
	case std != nil:
		return std.Value(key)
	case ended: // context.Cause looks for the cause by Value
		return c.standard().Value(key)
	default:
		return c.parent.Value(key)
	}
}

package engine

import (
	"context"
	"sync"
	"time"
)

// Lazy is a cancellable context that creates its channel at the first call of Done, which most handlers never call.
// Contexts of the standard library would cost 3 more allocations in middleware's BenchmarkRetrySuccess, and 9 instead
// of 0 in adapters/kafka's BenchmarkConsumeSuccess, which would take 3 times as long. Embed it, call Init once, and
// always call End.
type Lazy struct {
	parent   context.Context
	deadline *time.Time // nil for none; the owner calls End at that time
	mu       sync.Mutex
	std      *standard // created when it is needed
	cause    error     // not nil once ended
	expires  bool      // AllowExpire was called
	expired  bool      // Expire has ended the context
}

// standard is the context of the standard library that a Lazy delegates to.
type standard struct {
	context.Context
	cancel    context.CancelCauseFunc
	expirable *expirableParent // its parent, where it may expire
}

// Init sets the parent, and the deadline that Deadline returns; if it is zero, Deadline returns the parent's. Init must be called
// once, before the context is shared.
func (c *Lazy) Init(parent context.Context, deadline time.Time) {
	c.parent = parent
	if !deadline.IsZero() {
		own := deadline // a variable of its own, so that only this allocates
		c.deadline = &own
	}
}

// AllowExpire makes Expire possible. It must be called before Done, and makes Done cost more. It may run beside End.
func (c *Lazy) AllowExpire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expires = true
}

// End cancels the context. A nil cause is context.Canceled.
func (c *Lazy) End(cause error) {
	if cause == nil {
		cause = context.Canceled
	}
	c.end(cause, false)
}

// Expire ends the context as a deadline does: its error, and that of the contexts below it, is context.DeadlineExceeded. Without
// AllowExpire it does the same as End.
func (c *Lazy) Expire(cause error) { c.end(cause, c.expires) }

func (c *Lazy) end(cause error, expired bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return
	}
	if c.parent.Err() != nil { // the parent ended first, so its error and cause count
		if c.std == nil {
			c.makeLocked(c.parent)
		}
		c.std.followParent()
		expired = false
	}
	c.cause, c.expired = cause, expired
	switch {
	case c.std == nil:
	case expired:
		c.std.expirable.expire(cause)
	default:
		c.std.cancel(cause)
	}
}

// makeLocked creates std below parent.
func (c *Lazy) makeLocked(parent context.Context) {
	c.std = &standard{}
	if c.expires && parent.Err() == nil {
		c.std.expirable = &expirableParent{Context: parent}
		parent = c.std.expirable
	}
	c.std.Context, c.std.cancel = context.WithCancelCause(parent)
}

// standard returns std, and creates it first if necessary.
func (c *Lazy) standard() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.std != nil:
		c.std.followParent()
	case c.expired: // before the parent, whose later end does not count
		c.std = &standard{Context: expiredContext(c.parent, c.cause)}
	case c.cause != nil: // likewise
		c.makeLocked(context.WithoutCancel(c.parent))
		c.std.cancel(c.cause)
	default:
		c.makeLocked(c.parent)
	}
	return c.std.Context
}

// Done implements [context.Context].
func (c *Lazy) Done() <-chan struct{} { return c.standard().Done() }

// Err implements [context.Context].
func (c *Lazy) Err() error {
	c.mu.Lock()
	std, ended, expired := c.std, c.cause != nil, c.expired
	c.mu.Unlock()
	switch {
	case std != nil:
		std.followParent()
		return std.Err()
	case expired:
		return context.DeadlineExceeded
	case ended:
		return context.Canceled
	default:
		return c.parent.Err()
	}
}

// Deadline implements [context.Context].
func (c *Lazy) Deadline() (time.Time, bool) {
	d, ok := c.parent.Deadline()
	if c.deadline != nil && (!ok || c.deadline.Before(d)) {
		return *c.deadline, true
	}
	return d, ok
}

// Value implements [context.Context]. The standard library finds std with it, and so needs no goroutine to watch this context.
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

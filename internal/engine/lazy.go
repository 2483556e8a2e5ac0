package engine

import (
	"context"
	"sync"
	"time"
)

// Lazy is a cancellable context that makes its channel when somebody asks for
// it: most handlers never do. With contexts of the standard library a message that
// succeeds would cost 3 allocations more in BenchmarkRetrySuccess of package
// middleware, and 9 and not 0 in BenchmarkConsumeSuccess of adapters/kafka, which takes
// 3 times as long then. Embed it, Init it once, End it always.
type Lazy struct {
	parent   context.Context
	deadline *time.Time // nil for none; only told, the owner calls End
	mu       sync.Mutex
	std      *standard // made on demand
	cause    error     // not nil once ended
	expires  bool      // Expire may be called
	expired  bool      // it was, and ended the context
}

// standard is the standard library's context that stands for a Lazy.
type standard struct {
	context.Context
	cancel    context.CancelCauseFunc
	expirable *expirableParent // what it stands below, where it may expire
}

// Init sets the context's parent, and the deadline that it tells (zero: the
// parent's). It must be called once, before anybody else sees the context.
func (c *Lazy) Init(parent context.Context, deadline time.Time) {
	c.parent = parent
	if !deadline.IsZero() {
		own := deadline // a variable of its own, so that only this allocates
		c.deadline = &own
	}
}

// Expires says that the context may Expire, which costs something once somebody
// asks for its channel. It must be called right after Init.
func (c *Lazy) Expires() { c.expires = true }

// End cancels the context. A nil cause is context.Canceled.
func (c *Lazy) End(cause error) {
	if cause == nil {
		cause = context.Canceled
	}
	c.end(cause, false)
}

// Expire ends the context as a deadline does: its error, and that of the
// contexts below it, is context.DeadlineExceeded. Without Expires it is End.
func (c *Lazy) Expire(cause error) { c.end(cause, c.expires) }

func (c *Lazy) end(cause error, expired bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return
	}
	if c.parent.Err() != nil { // it ended first, so its error and cause stand
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

// makeLocked makes std below parent. The caller holds mu.
func (c *Lazy) makeLocked(parent context.Context) {
	c.std = &standard{}
	if c.expires && parent.Err() == nil {
		c.std.expirable = &expirableParent{Context: parent}
		parent = c.std.expirable
	}
	c.std.Context, c.std.cancel = context.WithCancelCause(parent)
}

// standard returns the standard library's context that stands for this one.
func (c *Lazy) standard() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.std != nil:
		c.std.followParent()
	case c.expired: // before the parent, whatever became of that since
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

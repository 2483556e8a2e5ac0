package engine

import (
	"context"
	"sync/atomic"
	"time"
)

// expirableParent is between a Lazy's parent and the Lazy's standard context, so that the standard context can end with
// DeadlineExceeded at any time. A cancel function of the standard library sets only Canceled, and a deadline ends only by a timer.
// But a standard context below a parent of another type takes that parent's error, through AfterFunc.
type expirableParent struct {
	context.Context // the Lazy's parent
	expired         atomic.Pointer[context.Context]
	cancelBelow     func() // ends the standard context with this one's error and cause
}

// never is a channel that belongs to no context of the standard library: the standard library must not find one of its
// own contexts above this one.
var never = make(chan struct{})

// expiredContext returns a context whose deadline has passed, with the values of parent.
func expiredContext(parent context.Context, cause error) context.Context {
	ctx, cancel := context.WithDeadlineCause(context.WithoutCancel(parent), time.Unix(0, 0), cause)
	cancel() // it has ended already
	return ctx
}

// expire ends the standard context with DeadlineExceeded and cause.
func (p *expirableParent) expire(cause error) {
	over := expiredContext(p.Context, cause)
	p.expired.Store(&over)
	p.cancelBelow()
}

// followParent ends a context whose parent has ended. The standard library does that too, but below an expirableParent
// it does so a moment later, in a goroutine.
func (s *standard) followParent() {
	if s.expirable != nil && s.expirable.Context.Err() != nil {
		s.expirable.cancelBelow()
	}
}

// AfterFunc is the method that the standard library looks for in a parent.
func (p *expirableParent) AfterFunc(cancel func()) (stop func() bool) {
	p.cancelBelow = cancel
	return context.AfterFunc(p.Context, cancel)
}

// Done implements [context.Context]. Nobody waits for it: see AfterFunc.
func (p *expirableParent) Done() <-chan struct{} { return never }

// Err implements [context.Context].
func (p *expirableParent) Err() error { return p.current().Err() }

// Value implements [context.Context]. context.Cause finds the cause through it.
func (p *expirableParent) Value(key any) any { return p.current().Value(key) }

func (p *expirableParent) current() context.Context {
	if over := p.expired.Load(); over != nil {
		return *over
	}
	return p.Context
}

package engine

import (
	"context"
	"sync/atomic"
	"time"
)

// expirableParent stands between a Lazy's parent and its standard context, so that this one
// can end as by a deadline when it is told to: the standard library's cancel
// functions know only Canceled, and its deadlines only timers. From a parent
// that it does not know, though, it takes the error, through AfterFunc.
type expirableParent struct {
	context.Context // the Lazy's parent
	expired         atomic.Pointer[context.Context]
	cancelBelow     func() // ends the context below with the fuse's error and cause
}

// never is the channel of no context: the standard library must not find one of
// its own behind the fuse.
var never = make(chan struct{})

// expiredContext is a context with the values of parent whose deadline has passed.
func expiredContext(parent context.Context, cause error) context.Context {
	ctx, cancel := context.WithDeadlineCause(context.WithoutCancel(parent), time.Unix(0, 0), cause)
	cancel() // it has ended already
	return ctx
}

// expire ends the context below.
func (f *expirableParent) expire(cause error) {
	over := expiredContext(f.Context, cause)
	f.expired.Store(&over)
	f.cancelBelow()
}

// followParent ends a context whose parent has ended. The standard library does that
// by itself, but behind a fuse a moment later, in a goroutine.
func (s *standard) followParent() {
	if s.expirable != nil && s.expirable.Context.Err() != nil {
		s.expirable.cancelBelow()
	}
}

// AfterFunc is what the standard library looks for in a parent.
func (f *expirableParent) AfterFunc(burn func()) (stop func() bool) {
	f.cancelBelow = burn
	return context.AfterFunc(f.Context, burn)
}

// Done implements [context.Context]. Nobody waits for it: see AfterFunc.
func (f *expirableParent) Done() <-chan struct{} { return never }

// Err implements [context.Context].
func (f *expirableParent) Err() error { return f.current().Err() }

// Value implements [context.Context]. By it the cause of an end is found.
func (f *expirableParent) Value(key any) any { return f.current().Value(key) }

func (f *expirableParent) current() context.Context {
	if over := f.expired.Load(); over != nil {
		return *over
	}
	return f.Context
}

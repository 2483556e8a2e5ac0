package engine

import (
	"context"
	"sync/atomic"
	"time"
)

// fuse stands between a Lazy's parent and its standard context, so that this one
// can end as by a deadline when it is told to: the standard library's cancel
// functions know only Canceled, and its deadlines only timers. From a parent
// that it does not know, though, it takes the error, through AfterFunc.
type fuse struct {
	context.Context // the Lazy's parent
	over            atomic.Pointer[context.Context]
	burn            func() // ends the context below with the fuse's error and cause
}

// never is the channel of no context: the standard library must not find one of
// its own behind the fuse.
var never = make(chan struct{})

// overdue is a context with the values of parent whose deadline has passed.
func overdue(parent context.Context, cause error) context.Context {
	ctx, cancel := context.WithDeadlineCause(context.WithoutCancel(parent), time.Unix(0, 0), cause)
	cancel() // it has ended already
	return ctx
}

// expire ends the context below.
func (f *fuse) expire(cause error) {
	over := overdue(f.Context, cause)
	f.over.Store(&over)
	f.burn()
}

// follow ends a context whose parent has ended. The standard library does that
// by itself, but behind a fuse a moment later, in a goroutine.
func (s *standard) follow() {
	if s.fuse != nil && s.fuse.Context.Err() != nil {
		s.fuse.burn()
	}
}

// AfterFunc is what the standard library looks for in a parent.
func (f *fuse) AfterFunc(burn func()) (stop func() bool) {
	f.burn = burn
	return context.AfterFunc(f.Context, burn)
}

// Done implements [context.Context]. Nobody waits for it: see AfterFunc.
func (f *fuse) Done() <-chan struct{} { return never }

// Err implements [context.Context].
func (f *fuse) Err() error { return f.now().Err() }

// Value implements [context.Context]. By it the cause of an end is found.
func (f *fuse) Value(key any) any { return f.now().Value(key) }

func (f *fuse) now() context.Context {
	if over := f.over.Load(); over != nil {
		return *over
	}
	return f.Context
}

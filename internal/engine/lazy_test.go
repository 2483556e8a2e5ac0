package engine_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/internal/engine"
)

type key struct{}

var (
	errOurs   = errors.New("ours")
	errTheirs = errors.New("theirs")
	errLate   = errors.New("late")
)

func ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// state is the result of all methods of a context.
type state struct {
	done       bool
	err, cause error
}

// A LazyContext behaves like a context of the standard library under every sequence of events, with and without calls of Done in between.
func TestLazyContextIsLikeTheStandardContext(t *testing.T) {
	type testContext struct {
		ctx, child  context.Context
		end, endAll context.CancelCauseFunc
		expire      func()
	}
	values := context.WithValue(context.Background(), key{}, "value")
	lazy := func() testContext {
		parent, endAll := context.WithCancelCause(values)
		c := new(engine.LazyContext)
		c.Init(parent)
		return testContext{ctx: c, end: c.End, endAll: endAll, expire: func() { c.Expire(errLate) }}
	}
	std := func(t *testing.T) testContext {
		parent, endAll := context.WithCancelCause(values)
		timed, drop := context.WithDeadlineCause(parent, time.Now().Add(time.Hour), errLate)
		t.Cleanup(drop)
		c, end := context.WithCancelCause(timed)
		return testContext{ctx: c, end: end, endAll: endAll, expire: func() { <-time.After(time.Hour); synctest.Wait() }}
	}
	steps := map[string]func(testContext){
		"end":         func(w testContext) { w.end(errOurs) },
		"end nil":     func(w testContext) { w.end(nil) },
		"end again":   func(w testContext) { w.end(errTheirs) },
		"parent ends": func(w testContext) { w.endAll(errTheirs) },
		"expire":      func(w testContext) { w.expire() },
		"Done":        func(w testContext) { w.ctx.Done() },
		"Cause":       func(w testContext) { _ = context.Cause(w.ctx) },
		"Value":       func(w testContext) { w.ctx.Value(key{}) },
	}
	observe := func(w testContext) state {
		// Done last: it makes the channel.
		err, cause := w.ctx.Err(), context.Cause(w.ctx)
		s := state{ended(w.ctx), w.ctx.Err(), context.Cause(w.ctx)}
		if s.err != err || s.cause != cause { //nolint:errorlint // the identical error, not an equal one
			t.Errorf("Err was %v and Cause %v before Done was called, and %v and %v after", err, cause, s.err, s.cause)
		}
		if w.ctx.Value(key{}) != "value" || w.ctx.Value(new(int)) != nil {
			t.Error("the values of the parent are missing")
		}
		return s
	}
	for _, order := range [][]string{
		{},
		{"Done"},
		{"end"},
		{"end nil"},
		{"end", "end again"},
		{"Done", "end"},
		{"end", "Done"},
		{"Value", "end", "Value"},
		{"Cause", "end", "Cause"},
		{"parent ends"},
		{"Done", "parent ends"},
		{"parent ends", "end"}, // the parent's cause is kept
		{"parent ends", "Done", "end"},
		{"Done", "parent ends", "end"},
		{"end", "parent ends"}, // our cause is kept
		{"end", "Done", "parent ends"},
		{"end", "parent ends", "Done"},
		{"Done", "end", "parent ends"},
		{"expire"},
		{"Done", "expire"},
		{"expire", "Done"},
		{"Value", "expire", "Value"},
		{"Cause", "expire", "Cause"},
		{"expire", "expire"},
		{"expire", "end"},
		{"end", "expire"},
		{"Done", "expire", "end"},
		{"Done", "end", "expire"},
		{"expire", "parent ends"},
		{"parent ends", "expire"},
		{"expire", "Done", "parent ends"},
		{"expire", "parent ends", "Done"},
		{"Done", "expire", "parent ends"},
		{"Done", "parent ends", "expire"},
		{"parent ends", "Done", "expire"},
	} {
		synctest.Test(t, func(t *testing.T) {
			got, want := lazy(), std(t)
			if slices.Contains(order, "Done") { // a child asks for it, too
				child := func(w *testContext) (drop context.CancelFunc) {
					w.child, drop = context.WithCancel(w.ctx)
					return drop
				}
				defer child(&got)()
				defer child(&want)()
			}
			for _, s := range order {
				steps[s](got)
				steps[s](want)
			}
			if g, w := observe(got), observe(want); g != w {
				t.Errorf("after %q: %v, the standard library's is %v", order, g, w)
			}
			synctest.Wait()
			if got.child != nil && (got.child.Err() != want.child.Err() || context.Cause(got.child) != context.Cause(want.child)) { //nolint:errorlint // the very same
				t.Errorf("after %q: the child's error is %v, its cause %v, with the standard library %v and %v",
					order, got.child.Err(), context.Cause(got.child), want.child.Err(), context.Cause(want.child))
			}
			for _, w := range []testContext{got, want} {
				w.end(nil)
				w.endAll(nil)
			}
		})
	}
}

// A message has a chain of contexts: the delivery, the Router's values, the attempt, and those that a handler derives. For a context
// that the standard library does not know, each child would need a goroutine.
func TestChildrenOfALazyContextNeedNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session, endSession := context.WithCancelCause(t.Context())
		defer endSession(nil)
		var delivery, attempt engine.LazyContext
		delivery.Init(session)
		attempt.Init(context.WithValue(&delivery, key{}, "value"))
		before := runtime.NumGoroutine()
		children := make([]context.Context, 0, 20)
		for range 10 {
			child, cancel := context.WithCancel(&attempt)
			defer cancel()
			timed, cancel := context.WithTimeout(&attempt, time.Hour)
			defer cancel()
			children = append(children, child, timed)
		}
		var fired sync.WaitGroup
		fired.Add(2)
		context.AfterFunc(&attempt, fired.Done)
		context.AfterFunc(children[0], fired.Done)
		if n := runtime.NumGoroutine() - before; n != 0 {
			t.Errorf("%d goroutines watch the children", n)
		}
		attempt.End(errOurs)
		fired.Wait()
		for i, c := range children {
			if !ended(c) || !errors.Is(context.Cause(c), errOurs) {
				t.Errorf("child %d: ended %v, cause %v", i, ended(c), context.Cause(c))
			}
		}
		if ended(&delivery) {
			t.Error("the end of the child has ended its parent")
		}
		endSession(errTheirs)
		if !ended(&delivery) || !errors.Is(context.Cause(&delivery), errTheirs) {
			t.Errorf("the end of the session: ended %v, cause %v", ended(&delivery), context.Cause(&delivery))
		}
	})
}

// A LazyContext that has ended is not registered with its parent, which may live for days.
func TestLazyContextDoesNotGrowItsParent(t *testing.T) {
	session, endSession := context.WithCancel(t.Context())
	defer endSession()
	grow := func(n int) uint64 {
		for i := range n {
			var l engine.LazyContext
			l.Init(session)
			l.Done()
			if i%2 == 0 {
				l.Expire(errLate)
			}
			l.End(nil)
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapObjects
	}
	before := grow(1)
	if after := grow(5000); after > before+2500 {
		t.Errorf("%d objects remain of 5000 contexts that have ended", after-before)
	}
}

func TestLazyContextIsSafeForConcurrentUse(t *testing.T) {
	for range 50 {
		session, endSession := context.WithCancelCause(t.Context())
		var l engine.LazyContext
		l.Init(session)
		var wg sync.WaitGroup
		for _, f := range []func(){
			func() { <-l.Done() },
			func() { _ = l.Err() },
			func() { _ = context.Cause(&l) },
			func() { l.Value(key{}) },
			func() { l.End(errOurs) },
			func() { l.Expire(errLate) },
			func() { endSession(errTheirs) },
			func() {
				child, cancel := context.WithCancel(&l)
				defer cancel()
				<-child.Done()
			},
		} {
			wg.Go(f)
		}
		wg.Wait()
		if !ended(&l) || l.Err() == nil {
			t.Fatal("the context has not ended")
		}
	}
}

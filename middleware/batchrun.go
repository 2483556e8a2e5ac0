package middleware

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// errBatchGoexit is what a batch function is said to have panicked with that
// ended its goroutine by runtime.Goexit.
var errBatchGoexit = errors.New("the batch function called runtime.Goexit")

// batchRun is one call of a batch function.
type batchRun struct {
	delayqueue.Lazy
	g    *gatherer
	b    *MessageBatch
	slot atomic.Bool // it counts in g.running
}

// slab bounds how many messages are made at a time.
const slab = 128

// run runs one batch, in a goroutine of its own: that of a message could not
// outlive the message's answer.
func (g *gatherer) run() {
	spare := make([]BatchMessage, min(g.config.Size, slab))
	g.mu.Lock()
	if len(g.spare) < len(spare)/2 {
		g.spare = spare
	}
	now := time.Since(epoch)
	all := g.take(now)
	if len(all) == 0 {
		g.running--
		g.arm(now)
		g.mu.Unlock()
		return
	}
	if !g.start(now) { // there may be more than one
		g.arm(now)
	}
	g.mu.Unlock()

	r := &batchRun{g: g, b: &MessageBatch{Messages: slices.Clone(all)}}
	if g.sub != nil {
		r.b.Origin, r.b.Group = g.sub.Origin, g.sub.Group
	}
	r.b.run, r.b.open = r, len(all)
	for _, m := range all {
		m.batch = r.b
	}
	r.slot.Store(true)
	defer r.leave()
	r.do(all)
}

// leave gives the slot back, once.
func (r *batchRun) leave() {
	if !r.slot.Swap(false) {
		return
	}
	g := r.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	now := time.Since(epoch)
	if !g.start(now) {
		g.arm(now)
	}
}

// do calls the function and settles what it left.
func (r *batchRun) do(all []*BatchMessage) {
	timeout := time.Duration(0)
	if a := all[0].a; a != nil {
		timeout = a.Timeout()
	}
	now, deadline := time.Now(), time.Time{}
	if timeout > 0 {
		deadline = now.Add(timeout)
	}
	r.Init(values(all[0]), deadline)
	r.Expires()
	stop := r.watchSessions(all)
	delayqueue.BeginAll(now, func(yield func(*delayqueue.Attempt) bool) {
		for _, m := range all {
			if m.a != nil && !yield(&m.a.Attempt) {
				return
			}
		}
	})
	if timeout > 0 {
		expiry := time.AfterFunc(timeout, func() { r.expire(timeout) })
		stuck := time.AfterFunc(timeout+delayqueue.StuckAfter, r.leave)
		defer expiry.Stop()
		defer stuck.Stop()
	}
	returned := false
	var err error
	defer func() {
		if !returned {
			if v := recover(); v != nil {
				err = &redeliver.PanicError{Value: v, Stack: debug.Stack()}
			} else {
				err = &redeliver.PanicError{Value: errBatchGoexit, Stack: debug.Stack()}
			}
		}
		stop()
		r.End(nil)
		r.settle(all, err)
	}()
	err = r.g.fn(r, r.b)
	returned = true
}

// expire ends the context of a function that has settled all its messages; else
// the watch does, when it has taken them out of the function's hands.
func (r *batchRun) expire(timeout time.Duration) {
	r.b.mu.Lock()
	open := r.b.open
	r.b.mu.Unlock()
	if open == 0 {
		r.Expire(&redeliver.TimeoutError{After: timeout})
	}
}

// settle gives every message its verdict that has none: what was said of the
// whole batch, else what the function returned.
func (r *batchRun) settle(all []*BatchMessage, err error) {
	b := r.b
	b.mu.Lock()
	if b.called {
		err = b.answer
	}
	b.over = true
	open := all[:0]
	for _, m := range all {
		if !m.settled {
			m.settled = true
			open = append(open, m)
		}
	}
	b.mu.Unlock()
	for _, m := range open {
		m.give(err)
	}
}

// watchSessions ends the context when every message was lost to this process.
func (r *batchRun) watchSessions(all []*BatchMessage) (stop func()) {
	var sessions []context.Context
	for _, m := range all {
		s := m.ctx
		if m.d != nil {
			s = m.d.Session()
		}
		if n := len(sessions); n > 0 && s == sessions[n-1] {
			continue
		}
		if s.Done() == nil { // it cannot end
			return func() {}
		}
		if m.d == nil || !slices.Contains(sessions, s) {
			sessions = append(sessions, s)
		}
	}
	var left atomic.Int64
	left.Store(int64(len(sessions)))
	stops := make([]func() bool, len(sessions))
	for i, s := range sessions {
		stops[i] = context.AfterFunc(s, func() {
			if left.Add(-1) == 0 {
				r.End(context.Cause(s))
			}
		})
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// values is a context with the values of Subscribe's, that does not end. Those of
// a message are not there: a batch has many.
func values(m *BatchMessage) context.Context {
	if m.d == nil {
		return context.Background()
	}
	return context.WithoutCancel(m.d.Session())
}

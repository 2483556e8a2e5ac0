package engine

import (
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
)

// errBatchGoexit is the failure of a batch function that ended its goroutine by runtime.Goexit.
var errBatchGoexit = errors.New("the batch function called runtime.Goexit")

// run runs one batch. It needs a goroutine of its own: that of a message ends when the message has its answer.
func (q *Batches) run() {
	q.mu.Lock()
	now := time.Since(epoch)
	all := q.takeLocked(now)
	if len(all) == 0 {
		q.running--
		q.armLocked(now)
		q.mu.Unlock()
		return
	}
	if !q.startLocked(now) { // there may be another batch
		q.armLocked(now)
	}
	q.mu.Unlock()

	b := &Batch{queue: q, open: len(all)}
	if q.sub != nil {
		b.Origin, b.Group = q.sub.Origin, q.sub.Group
	}
	for _, m := range all {
		m.batch = b
	}
	b.slot.Store(true)
	defer b.leave()
	b.callAndSettle(all)
}

// leave removes the batch from queue.running, once.
func (b *Batch) leave() {
	if !b.slot.Swap(false) {
		return
	}
	q := b.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	now := time.Since(epoch)
	if !q.startLocked(now) {
		q.armLocked(now)
	}
}

// callAndSettle calls the batch function, and settles the messages that have no answer after it.
func (b *Batch) callAndSettle(all []*Batched) {
	timeout := time.Duration(0)
	if d := all[0].d; d != nil {
		timeout = d.Timeout()
	}
	now := time.Now()
	b.Init(b.beginSpan(values(all[0]), all), noDeadline)
	b.AllowExpire()
	stop := b.watchSessions(all)
	beginGathered(now, all)
	if timeout > 0 {
		b.startTimers(now.Sub(epoch), timeout, all)
		defer b.expiry.Stop()
		defer b.stuck.Stop()
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
		b.End(nil)
		b.endSpan(err)
		b.settle(all, err)
	}()
	err = b.queue.call(b, all)
	returned = true
}

// startTimers sets the timers of a batch that has a Timeout.
func (b *Batch) startTimers(began, timeout time.Duration, all []*Batched) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages, b.began, b.until = all, began, began+timeout
	b.expiry = time.AfterFunc(timeout, b.onTimeout)
	b.stuck = time.AfterFunc(timeout+StuckAfter, func() {
		if after, over := b.isOver(StuckAfter); over {
			b.leave()
			b.endSpan(&redeliver.TimeoutError{After: after})
		}
	})
}

// isOver reports whether the Timeout ended at least grace ago: a timer may fire while the batch is extended. after is
// the whole Timeout, with its extensions.
func (b *Batch) isOver(grace time.Duration) (after time.Duration, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until - b.began, time.Since(epoch) >= b.until+grace
}

// onTimeout ends the context of a batch function that has settled all its messages. Usually the watch ends the attempts
// of unsettled messages, and the context with the first of them. But the watch does not know the messages of an
// extended batch, and in Blocking order it waits until the function is stuck. In these two cases onTimeout ends them.
func (b *Batch) onTimeout() {
	timeout, over := b.isOver(0)
	if !over {
		return
	}
	b.mu.Lock()
	ends := b.open == 0
	if sub := b.queue.sub; sub != nil && (sub.Blocking || b.extended) && !b.over {
		for _, m := range b.messages {
			if !m.settled && m.d != nil {
				m.d.overtime()
			}
		}
		ends = ends || sub.Blocking
	}
	b.mu.Unlock()
	if ends {
		b.Expire(&redeliver.TimeoutError{After: timeout})
	}
}

// watchSessions ends the context when every message is lost to this process.
func (b *Batch) watchSessions(all []*Batched) (stop func()) {
	sessions := distinctSessions(all)
	for _, s := range sessions {
		if s.Done() == nil { // it cannot end
			return func() {}
		}
	}
	var left atomic.Int64
	left.Store(int64(len(sessions)))
	stops := make([]func() bool, len(sessions))
	for i, s := range sessions {
		stops[i] = context.AfterFunc(s, func() {
			if left.Add(-1) == 0 {
				b.End(context.Cause(s))
			}
		})
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// distinctSessions returns the sessions of messages, each once. A message of another subscriber has its own context as session.
func distinctSessions(all []*Batched) []context.Context {
	var sessions []context.Context
	known := make(map[context.Context]struct{}) // there may be as many sessions as messages
	for _, m := range all {
		s := m.ctx
		if m.d != nil {
			s = m.d.Session()
		}
		if n := len(sessions); n > 0 && s == sessions[n-1] { // as a rule
			continue
		}
		if m.d != nil {
			if _, ok := known[s]; ok {
				continue
			}
			known[s] = struct{}{}
		}
		sessions = append(sessions, s)
	}
	return sessions
}

// values returns a context that never ends, with the values of Subscribe's context. It has none from the context of a message,
// because a batch has many messages.
func values(m *Batched) context.Context {
	switch {
	case m.d == nil:
		return context.Background()
	case m.d.sub.Values != nil:
		return context.WithoutCancel(m.d.sub.Values)
	default:
		return context.WithoutCancel(m.d.Session())
	}
}

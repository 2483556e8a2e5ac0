package engine

import (
	"context"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
)

// run runs one batch. It needs a goroutine of its own: that of a message ends when the message has its answer.
func (q *Batches) run() {
	q.mu.Lock()
	now := time.Since(epoch)
	all := q.takeLocked(now)
	if len(all) == 0 {
		q.running--
	}
	keys := q.linkLocked(all)
	q.startLocked(now) // there may be another batch
	q.mu.Unlock()
	if len(all) == 0 {
		return
	}
	b := &Batch{queue: q, keys: keys}
	if q.sub != nil {
		b.Origin, b.Group = q.sub.Origin, q.sub.Group
	}
	for _, m := range all {
		m.batch = b
		if m.d != nil && len(all) > 1 {
			m.d.sharedBatch.Store(maphash.Comparable(keySeed, b))
		}
	}
	b.counted.Store(true)
	defer b.leave()
	b.callAndSettle(all)
}

// leave removes the batch from queue.running and frees its keys, once.
func (b *Batch) leave() {
	if !b.counted.Swap(false) {
		return
	}
	q := b.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	q.freeLocked(b.keys...)
	q.startLocked(time.Since(epoch))
}

// callAndSettle calls the batch function, and settles the messages that have no answer after it.
func (b *Batch) callAndSettle(all []*Batched) {
	now := time.Now()
	b.Init(b.beginSpan(values(all[0]), all))
	stop := b.watchSessions(all)
	if w := startClocks(now, all); w != nil {
		b.startTimers(now.Sub(epoch), w.timeout, all)
		defer b.expiry.Stop()
		defer b.stuck.Stop()
	}
	returned := false
	var err error
	defer func() {
		if !returned {
			err = panicError(recover())
		}
		stop()
		b.End(nil)
		b.endSpan(err)
		b.settle(all, err)
	}()
	err = b.call(all)
	returned = true
}

// call calls the batch function with the messages that were not handled before, if there are any.
func (b *Batch) call(all []*Batched) error {
	if dedup := b.queue.config.Dedup; dedup != nil {
		asked := make([]redeliver.BatchedMessage, len(all))
		for i, m := range all {
			asked[i] = m
		}
		rest, end, err := dedup.Begin(b, asked)
		if end != nil {
			defer end()
		}
		all = make([]*Batched, 0, len(rest))
		for _, one := range rest {
			if m, ok := one.(*Batched); ok {
				all = append(all, m)
			}
		}
		if len(all) == 0 {
			return err
		}
	}
	return b.queue.call(b, all)
}

func (b *Batch) startTimers(began, timeout time.Duration, all []*Batched) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages, b.began, b.until = all, began, began+timeout
	b.expiry = time.AfterFunc(timeout, b.onTimeout)
	b.stuck = time.AfterFunc(timeout+StuckAfter, func() {
		if after, over := b.isOver(StuckAfter); over {
			b.mu.Lock()
			for _, m := range b.messages {
				if !m.answered {
					m.holdExpiredLocked()
				}
			}
			b.mu.Unlock()
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

// onTimeout ends the context of a batch function. The attempts of its messages must end first: otherwise the function's answer, an
// ended context, would count instead of their timeout.
func (b *Batch) onTimeout() {
	timeout, over := b.isOver(0)
	if !over {
		return
	}
	b.mu.Lock()
	for _, m := range b.messages {
		if !m.answered && m.d != nil {
			m.d.endWithBatch()
		}
	}
	b.mu.Unlock()
	b.Expire(&redeliver.TimeoutError{After: timeout})
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
func distinctSessions(all []*Batched) (sessions []context.Context) {
	for _, m := range all {
		if m.d == nil {
			sessions = append(sessions, m.ctx)
		} else if s := m.d.Session(); !slices.Contains(sessions, s) { // there are few
			sessions = append(sessions, s)
		}
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

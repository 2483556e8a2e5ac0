package engine

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// maxLeaveDelay is how long a message whose context has ended may stay in the queue. It would be expensive to watch each
// context, and most messages are in a batch by then.
const maxLeaveDelay = 50 * time.Millisecond

// minTick is the shortest time between two looks at the queue. While all batches run, a shorter Timeout would be a busy loop.
const minTick = 5 * time.Millisecond

// BatchCall calls a batch function with at least one message. b is the batch and the context of the call; all has its
// messages in the order of arrival, and must not be kept.
type BatchCall func(b *Batch, all []*Batched) error

// Batches is the queue in which messages of one subscription wait for their batch. The messages of a batch are taken from it only
// when the batch runs.
type Batches struct {
	config BatchConfig
	call   BatchCall
	sub    *Subscription // nil for messages of other subscribers

	mu      sync.Mutex
	waiting FIFO[*Batched]
	bytes   int  // of the waiting messages
	alone   int  // waiting messages that must run alone
	running int  // batch functions that run
	armed   bool // the timer is set
}

// NewBatches makes the queue of a subscription; sub is nil for messages of other subscribers. config has its defaults and was
// checked.
func NewBatches(config BatchConfig, sub *Subscription, call BatchCall) *Batches {
	q := &Batches{config: config, call: call, sub: sub}
	if sub != nil {
		sub.Drain.Notify(q.startReady)
	}
	return q
}

// Add calls ready, and adds the message if ready returns true. SetAnswer is not called before ready has returned.
func (q *Batches) Add(m *Batched, ready func() bool) (added bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !ready() {
		return false
	}
	q.addLocked(m)
	return true
}

func (q *Batches) addLocked(m *Batched) {
	m.since = time.Since(epoch)
	q.waiting.Push(m)
	q.countLocked(m, 1)
	q.startLocked(m.since)
}

// countLocked counts a message that has come, with n 1, or has left, with n -1.
func (q *Batches) countLocked(m *Batched, n int) {
	q.bytes += n * m.bytes
	if m.isAlone() {
		q.alone += n
	}
}

func (q *Batches) startReady() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.startLocked(time.Since(epoch))
}

// startLocked starts a batch if one may run. Otherwise it sets the timer of the queue, if it is not set. Under load the
// timer usually fires and finds nothing to do.
func (q *Batches) startLocked(now time.Duration) {
	if q.running < q.config.Concurrency && q.isReadyLocked(now) {
		q.running++
		go q.run()
		return
	}
	if q.waiting.Empty() || q.armed {
		return
	}
	q.armed = true
	wait := maxLeaveDelay
	if q.config.Timeout != NoWait {
		wait = min(wait, max(q.config.Timeout, minTick))
		if left := q.waiting.Peek().since + q.config.Timeout - now; left > 0 { // otherwise the end of a running batch starts the next
			wait = min(wait, left)
		}
	}
	time.AfterFunc(wait, q.tick)
}

// isReadyLocked reports whether a batch of the waiting messages should run now.
func (q *Batches) isReadyLocked(now time.Duration) bool {
	switch n := q.waiting.Len(); {
	case n == 0:
		return false
	case n >= q.config.Size, q.config.Bytes > 0 && q.bytes >= q.config.Bytes, q.config.Timeout == NoWait, q.alone > 0,
		now >= q.waiting.Peek().since+q.config.Timeout:
		return true
	case q.sub == nil:
		return false
	default: // no more messages can come
		limit := q.sub.slots.currentLimit()
		return limit > 0 && n >= limit || q.sub.Drain.Draining() || q.sub.Turn != nil && q.sub.Turn.Closed()
	}
}

func (q *Batches) takeLocked(now time.Duration) (all []*Batched) {
	if !q.isReadyLocked(now) { // some have left meanwhile
		return nil
	}
	all = make([]*Batched, 0, min(q.waiting.Len(), q.config.Size))
	for bytes := 0; !q.waiting.Empty() && len(all) < q.config.Size; {
		m := q.waiting.Peek()
		if q.answerIfLostLocked(m) {
			q.waiting.Pop()
			continue
		}
		if err := m.checkExpired(); err != nil {
			q.waiting.Pop()
			q.countLocked(m, -1)
			m.waiter.SetAnswer(err)
			continue
		}
		bytes += m.bytes
		if len(all) > 0 && (q.config.Bytes > 0 && bytes > q.config.Bytes || m.isAlone()) {
			break
		}
		all = append(all, q.waiting.Pop())
		q.countLocked(m, -1)
		if m.isAlone() {
			break
		}
	}
	return all
}

// answerIfLostLocked answers for a message that must not be handled any more. It reports whether it did: then the caller
// removes the message.
func (q *Batches) answerIfLostLocked(m *Batched) bool {
	if !m.isLost() {
		return false
	}
	m.RestartClock()
	q.countLocked(m, -1)
	m.waiter.SetAnswer(fmt.Errorf("waiting for a batch: %w", cmp.Or(context.Cause(m.ctx), ErrLost)))
	return true
}

// tick removes the messages that must not be handled any more, and starts a batch if one may run.
func (q *Batches) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = false
	q.waiting.Delete(q.answerIfLostLocked)
	q.startLocked(time.Since(epoch))
}

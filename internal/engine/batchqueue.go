package engine

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// watchDelay is how long a message waits for its batch before its context is watched. Watching is expensive, and most
// messages are in a batch by then.
const watchDelay = 50 * time.Millisecond

// BatchCall calls a batch function with at least one message. b is the batch and the context of the call; all has its
// messages in the order of arrival, and must not be kept.
type BatchCall func(b *Batch, all []*Batched) error

// Batches is the queue in which messages of one subscription wait for their batch, the oldest first. The messages of a batch are
// taken from it only when the batch runs.
type Batches struct {
	config BatchConfig
	call   BatchCall
	sub    *Subscription // nil for messages of other subscribers

	mu           sync.Mutex
	head, tail   *Batched
	unwatched    *Batched // the oldest whose context is not watched yet
	n, bytes     int      // of the messages
	alone        int      // messages that must run alone
	running      int      // batch functions that run
	timeoutArmed bool     // a timer is set for the Timeout of the oldest
	watchArmed   bool     // a timer is set for watchContexts
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

// Add calls ready, and adds the message if ready returns true. Verdict is not called before ready has returned.
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
	m.prev = q.tail
	if q.tail == nil {
		q.head = m
	} else {
		q.tail.next = m
	}
	q.tail = m
	if q.unwatched == nil {
		q.unwatched = m
	}
	q.n++
	q.bytes += m.bytes
	if m.isAlone() {
		q.alone++
	}
	if !q.startLocked(m.since) {
		q.armLocked(m.since)
	}
}

// startReady starts a batch if one may run.
func (q *Batches) startReady() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.startLocked(time.Since(epoch))
}

// startLocked starts a batch if one may run, and reports whether it did.
func (q *Batches) startLocked(now time.Duration) bool {
	if q.running >= q.config.Concurrency || !q.readyLocked(now) {
		return false
	}
	q.running++
	go q.run()
	return true
}

// readyLocked reports whether a batch of the waiting messages should run now.
func (q *Batches) readyLocked(now time.Duration) bool {
	switch {
	case q.n == 0:
		return false
	case q.n >= q.config.Size, q.shrunkLocked(), q.config.Bytes > 0 && q.bytes >= q.config.Bytes, q.config.Timeout == NoWait, q.alone > 0:
		return true
	case q.sub != nil && q.sub.Drain.Draining():
		return true
	default:
		return now >= q.head.since+q.config.Timeout
	}
}

// shrunkLocked reports whether no more messages can come, because the limit of slots has shrunk and all messages in flight
// wait in the queue.
func (q *Batches) shrunkLocked() bool {
	if q.sub == nil {
		return false
	}
	maxInFlight := q.sub.slots.currentLimit()
	return maxInFlight > 0 && q.n >= maxInFlight
}

// takeLocked takes the messages of a batch out of the queue.
func (q *Batches) takeLocked(now time.Duration) []*Batched {
	if !q.readyLocked(now) { // some have left meanwhile
		return nil
	}
	all, bytes := make([]*Batched, 0, min(q.n, q.config.Size)), 0
	for m := q.head; m != nil && len(all) < q.config.Size; m = q.head {
		if m.isLost() {
			q.dismissLocked(m)
			continue
		}
		if err := m.checkExpired(); err != nil {
			q.unlinkLocked(m)
			m.waiter.Verdict(err)
			continue
		}
		bytes += m.bytes
		if len(all) > 0 && (q.config.Bytes > 0 && bytes > q.config.Bytes || m.isAlone()) {
			break
		}
		q.unlinkLocked(m)
		all = append(all, m)
		if m.isAlone() {
			break
		}
	}
	return all
}

// unlinkLocked takes a message out of the queue.
func (q *Batches) unlinkLocked(m *Batched) {
	if q.unwatched == m {
		q.unwatched = m.next
	}
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		q.head = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	} else {
		q.tail = m.prev
	}
	m.prev, m.next = nil, nil
	q.n--
	q.bytes -= m.bytes
	if m.isAlone() {
		q.alone--
	}
	if m.unwatch != nil {
		m.unwatch()
		m.unwatch = nil
	}
	m.taken = true
}

// dismissLocked removes a message that must not be handled any more.
func (q *Batches) dismissLocked(m *Batched) {
	q.unlinkLocked(m)
	m.Leave()
	m.waiter.Verdict(fmt.Errorf("waiting for a batch: %w", cmp.Or(context.Cause(m.ctx), ErrLost)))
}

// armLocked sets those of the queue's two timers that are not set. A timer serves the whole queue, not one message or
// batch. Under load most timers fire and find nothing to do.
func (q *Batches) armLocked(now time.Duration) {
	if q.head == nil {
		return
	}
	if !q.timeoutArmed && q.config.Timeout != NoWait {
		q.timeoutArmed = true
		time.AfterFunc(max(0, q.head.since+q.config.Timeout-now), q.tick)
	}
	if !q.watchArmed && q.unwatched != nil {
		q.watchArmed = true
		time.AfterFunc(max(0, q.unwatched.since+watchDelay-now), q.watchContexts)
	}
}

func (q *Batches) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timeoutArmed = false
	now := time.Since(epoch)
	// A batch that is ready but cannot start now starts when a running batch ends.
	if !q.startLocked(now) && !q.readyLocked(now) {
		q.armLocked(now)
	}
}

// watchContexts watches the contexts of the messages that have waited for watchDelay.
func (q *Batches) watchContexts() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.watchArmed = false
	now := time.Since(epoch)
	for m := q.unwatched; m != nil && m.since+watchDelay <= now; m = m.next {
		m.unwatch = context.AfterFunc(m.ctx, func() { q.removeEnded(m) })
		q.unwatched = m.next
	}
	if q.unwatched != nil {
		q.watchArmed = true
		time.AfterFunc(q.unwatched.since+watchDelay-now, q.watchContexts)
	}
}

// removeEnded takes a message whose context has ended out of the queue.
func (q *Batches) removeEnded(m *Batched) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !m.taken {
		q.dismissLocked(m)
	}
}

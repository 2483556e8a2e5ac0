package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// maxLeaveDelay is how long a message whose context has ended may stay in the queue. It would be expensive to watch each
// context, and most messages are in a batch by then.
const maxLeaveDelay = 50 * time.Millisecond

// minTick is the shortest time between two looks at the queue. While all batches run, a shorter Timeout would be a busy loop.
const minTick = 5 * time.Millisecond

// maxSourceIdle is how long a batch waits after its latest message where failed messages wait in their source. SQS delivers no more
// messages of a FIFO queue's group while some of them are not settled, so more may come only after the batch has run.
const maxSourceIdle = 200 * time.Millisecond

// BatchCall calls a batch function with at least one message. b is the batch and the context of the call; all has its
// messages in the order of arrival, and must not be kept.
type BatchCall func(b *Batch, all []*Batched) error

// Batches is the queue in which messages of one subscription wait for their batch. The messages of a batch are taken from it only
// when the batch runs. No two batches that run have messages of one key.
type Batches struct {
	config  redeliver.BatchConfig
	call    BatchCall
	sub     *Subscription // nil for messages of other subscribers
	ordered bool          // messages wait for an earlier one of their key that has failed

	mu        sync.Mutex
	groups    []*batchGroup       // by their size, the largest first
	busy      map[uint64]int      // batches that run, and failed messages that have not ended, by key
	running   int                 // batch functions that run
	latestAdd time.Duration       // when a message was last added, counted from epoch
	armed     bool                // the timer is set
	latest    map[uint64]*Batched // used by linkLocked
}

// batchGroup has the waiting messages whose batches have the same maximum size. Retries have smaller batches than first
// deliveries, see [Batches.sizeFor].
type batchGroup struct {
	size    int
	waiting FIFO[*Batched]
	bytes   int // of the waiting messages
}

// NewBatches makes the queue of a subscription; sub is nil for messages of other subscribers. config has its defaults and was
// checked.
func NewBatches(config redeliver.BatchConfig, sub *Subscription, call BatchCall) *Batches {
	q := &Batches{config: config, call: call, sub: sub, busy: make(map[uint64]int), latest: make(map[uint64]*Batched)}
	if sub != nil {
		q.ordered = sub.WaitsForFailed()
		sub.Drain.Notify(q.startReady)
	}
	return q
}

// Add adds a message. Its answer may come before Add returns. The messages of a key are in the order in which their lane let
// them in.
func (q *Batches) Add(m *Batched) {
	if m.d != nil {
		m.d.entry.join(q, m)
		return
	}
	q.add(m)
}

func (q *Batches) add(m *Batched) {
	size := q.sizeFor(m.d)
	q.mu.Lock()
	defer q.mu.Unlock()
	m.queue, m.since = q, time.Since(epoch)
	q.latestAdd = m.since
	m.group = q.groupLocked(size)
	m.group.push(m)
	q.startLocked(m.since)
}

// sizeFor returns the maximum size of the batches of a message. The error of a whole batch may be the fault of one message. So
// the batches of each attempt are at most half as large as those of the attempt before, and a message is alone in its last attempt.
func (q *Batches) sizeFor(d *Delivery) int {
	switch {
	case d == nil:
		return q.config.Size
	case d.single:
		return 1
	case d.isFirst():
		return q.config.Size
	}
	attempts, retries := d.State().Attempts, max(1, d.sub.Policy.MaxRetries)
	if attempts >= retries {
		return 1
	}
	size := float64(q.config.Size)
	divisor := max(2, math.Pow(size, 1/float64(retries)))
	return int(math.Ceil(size / math.Pow(divisor, float64(attempts))))
}

// maxOfKey returns how many messages of one key may wait and run at once: as many as a batch that runs and the next one have,
// but so few that there are slots for a batch of other keys.
func (q *Batches) maxOfKey() int {
	n := 2 * q.config.Size
	if q.sub != nil && q.sub.MaxInFlight > 0 {
		n = min(n, q.sub.MaxInFlight-q.config.Size)
	}
	return max(q.config.Size, n)
}

// groupLocked returns the group of a size.
func (q *Batches) groupLocked(size int) *batchGroup {
	i := 0
	for i < len(q.groups) && q.groups[i].size > size {
		i++
	}
	if i == len(q.groups) || q.groups[i].size != size {
		q.groups = slices.Insert(q.groups, i, &batchGroup{size: size})
	}
	return q.groups[i]
}

func (g *batchGroup) push(m *Batched) {
	g.waiting.Push(m)
	g.bytes += m.bytes
}

func (q *Batches) startReady() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.startLocked(time.Since(epoch))
}

// startLocked starts a batch if one may run. Otherwise it sets the timer of the queue, if it is not set. Under load the
// timer usually fires and finds nothing to do.
func (q *Batches) startLocked(now time.Duration) {
	if q.running < q.config.Concurrency && q.readyLocked(now) != nil {
		q.running++
		go q.run()
		return
	}
	if q.armed {
		return
	}
	wait := time.Duration(-1)
	for _, g := range q.groups {
		if g.waiting.Empty() {
			continue
		}
		if wait < 0 {
			wait = maxLeaveDelay
		}
		if q.config.Timeout != redeliver.NoWait {
			wait = min(wait, max(q.config.Timeout, minTick))
			if left := q.endLocked(g.waiting.Peek()) - now; left > 0 { // otherwise the end of a running batch starts the next
				wait = min(wait, left)
			}
		}
	}
	if wait < 0 {
		return
	}
	q.armed = true
	time.AfterFunc(wait, q.tick)
}

// readyLocked returns the group whose batch should run now, or nil: of those that are ready the one whose first message has waited
// longest.
func (q *Batches) readyLocked(now time.Duration) (ready *batchGroup) {
	var since time.Duration
	waitsForMore := q.waitsForMoreLocked()
	for _, g := range q.groups {
		if at, ok := q.isReadyLocked(g, now, waitsForMore); ok && (ready == nil || at < since) {
			ready, since = g, at
		}
	}
	return ready
}

// isReadyLocked reports whether a batch of a group should run now, and since when its first message has waited.
func (q *Batches) isReadyLocked(g *batchGroup, now time.Duration, waitsForMore bool) (since time.Duration, ready bool) {
	if g.waiting.Empty() {
		return 0, false
	}
	isDue := func(m *Batched) bool { return q.config.Timeout == redeliver.NoWait || now >= q.endLocked(m) }
	hasBytes := func(n int) bool { return q.config.Bytes > 0 && n >= q.config.Bytes }
	if waitsForMore && g.waiting.Len() < g.size && !hasBytes(g.bytes) && !isDue(g.waiting.Peek()) {
		return 0, false
	}
	if len(q.busy) == 0 {
		return g.waiting.Peek().since, true
	}
	n, bytes := 0, 0
	for m := range g.waiting.All() {
		if q.busy[m.key] > 0 {
			continue
		}
		if n == 0 {
			since = m.since
			if !waitsForMore || isDue(m) {
				return since, true
			}
		}
		n++
		bytes += m.bytes
		if n >= g.size || hasBytes(bytes) {
			return since, true
		}
	}
	return 0, false
}

// endLocked returns when a batch whose first message is m waits no longer, counted from epoch.
func (q *Batches) endLocked(m *Batched) time.Duration {
	end := m.since + q.config.Timeout
	if q.sub != nil && q.sub.WaitsInSource {
		end = min(end, q.latestAdd+maxSourceIdle)
	}
	return end
}

// waitsForMoreLocked reports whether more messages may come before those that wait have run.
func (q *Batches) waitsForMoreLocked() bool {
	if q.sub == nil {
		return true
	}
	n := 0
	for _, g := range q.groups {
		n += g.waiting.Len()
	}
	limit := q.sub.slots.currentLimit()
	return !(limit > 0 && n >= limit || q.sub.Drain.Draining() || q.sub.Turn != nil && q.sub.Turn.Closed())
}

// takeLocked removes the messages of the next batch from the queue.
func (q *Batches) takeLocked(now time.Duration) (all []*Batched) {
	g := q.readyLocked(now)
	if g == nil { // some have left meanwhile
		return nil
	}
	all = make([]*Batched, 0, min(g.waiting.Len(), g.size))
	bytes := 0
	g.waiting.RemoveUntil(func(m *Batched) (remove, stop bool) {
		switch {
		case len(all) == g.size:
			return false, true
		case q.refuseIfLostLocked(m):
			return true, false
		case q.busy[m.key] > 0:
			return false, false
		}
		if err := m.checkExpired(); err != nil {
			g.bytes -= m.bytes
			go m.waiter.SetAnswer(err)
			return true, false
		}
		if bytes += m.bytes; len(all) > 0 && q.config.Bytes > 0 && bytes > q.config.Bytes {
			return false, true
		}
		g.bytes -= m.bytes
		all = append(all, m)
		return true, false
	})
	return all
}

// refuseIfLostLocked answers for a message that must not be handled any more. It reports whether it did: then the caller
// removes the message.
func (q *Batches) refuseIfLostLocked(m *Batched) bool {
	if !m.isLost() {
		return false
	}
	m.RestartClock()
	m.group.bytes -= m.bytes
	go m.waiter.SetAnswer(fmt.Errorf("waiting for a batch: %w", cmp.Or(context.Cause(m.ctx), ErrLost)))
	return true
}

// tick removes the messages that must not be handled any more, and starts a batch if one may run.
func (q *Batches) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = false
	for _, g := range q.groups {
		g.waiting.Delete(q.refuseIfLostLocked)
	}
	q.startLocked(time.Since(epoch))
}

// withdraw removes a message that waits in the queue, and makes it run again later. A message in a batch stays there.
func (m *Batched) withdraw() {
	q, found := m.queue, false
	q.mu.Lock()
	m.group.waiting.Delete(func(other *Batched) bool {
		if other == m {
			found = true
			m.group.bytes -= m.bytes
		}
		return other == m
	})
	q.mu.Unlock()
	if found {
		m.runAgain()
	}
}

// linkLocked connects the messages of each key in a batch, and marks the keys as busy. It returns them, each once.
func (q *Batches) linkLocked(all []*Batched) (keys []uint64) {
	for _, m := range all {
		if m.key == 0 {
			continue
		}
		if before := q.latest[m.key]; before != nil {
			m.before, before.after = before, m
		} else {
			if keys == nil {
				keys = make([]uint64, 0, len(all))
			}
			keys = append(keys, m.key)
			q.busy[m.key]++
		}
		q.latest[m.key] = m
	}
	clear(q.latest)
	return keys
}

// freeLocked undoes the mark of keys as busy.
func (q *Batches) freeLocked(keys ...uint64) {
	for _, key := range keys {
		if q.busy[key]--; q.busy[key] == 0 {
			delete(q.busy, key)
		}
	}
}

// holdKey keeps later messages of its key from running in another batch until freeKey.
func (m *Batched) holdKey() {
	m.queue.mu.Lock()
	defer m.queue.mu.Unlock()
	m.queue.busy[m.key]++
}

// freeKey undoes one holdKey.
func (m *Batched) freeKey() {
	q := m.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.freeLocked(m.key)
	q.startLocked(time.Since(epoch))
}

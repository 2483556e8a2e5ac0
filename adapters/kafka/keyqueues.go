package kafka

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/driver"
)

// The order PerKey is one rule: a record may run only if all records of its key with lower offsets in its origin
// partition are settled. It does not matter whether these are on the origin or on a level, or in which order they
// arrive. So duplicates after a crash do not matter either.
//
// keyQueues holds the unsettled records of one origin partition by key, in the order of their origin offsets. A record
// is parked on a level, or held by the lane that has read a copy of it. The lanes of the origin partition and of its
// levels share a keyQueues. A lane asks it about each copy, and asks again when a copy appears in its mailbox. It is
// safe for concurrent use.
type keyQueues struct {
	mu       sync.Mutex
	queues   map[uint64]*keyQueue // by hash: if two keys have one hash, they wait for each other, which does no harm
	spare    []*keyQueue
	onLevels *atomic.Int64 // records on levels, of the whole subscription

	// This session has read the origin's offsets in [from, next). Those without a queued record are settled. settled
	// has what this session settled at other offsets.
	from, next int64
	settled    map[keyOffset]int64 // time of their write to the origin
	// highest is the highest origin offset that was seen on a level.
	highest int64
	// conflicts are records that have the key and offset of another record, because the origin was deleted and created
	// again. They have no order, and none counts as a duplicate.
	conflicts map[keyOffset]struct{}
	// unread are the origin's records below highest that earlier sessions have not settled, in order. Later records of
	// their keys may be on a level and arrive first.
	unread []keyOffset

	loadedEnds map[string]int64 // end of each waiting topic when the session began
	ready      chan struct{}    // closed when everything that waited then is loaded
}

// keyOffset is a record's key and its offset in the origin.
type keyOffset struct {
	key    uint64
	offset int64
}

// keyQueue is the unsettled records of one key.
type keyQueue struct {
	records    []queuedRecord // by offset; those before head are removed
	duplicates []*recordCopy  // copies that a lane holds while another copy of their record is held
	head       int
	waiting    int // number of held copies that wait for the first record
}

// queuedRecord is one record of a queue. It may have several copies.
type queuedRecord struct {
	offset       int64
	written      int64       // time in the origin, Unix ms; with key and offset it identifies the record
	due          int64       // when a parked record comes back, in Unix milliseconds
	held         *recordCopy // the copy that a lane holds; nil if the record is parked
	attempts     int32       // of the newest copy; copies with fewer are out of date
	copies       int32       // loaded copies that are left
	done         bool        // settled; its other copies will be dropped
	deadLettered bool        // another copy than the held one was dead-lettered; the next copy is dropped
	unread       bool        // the origin's lane will read it; no copy is on a level
	onLevel      bool        // the newest copy is on a level, or was read there
}

// recordCopy is one copy of a record in the lane that has read it.
type recordCopy struct {
	keyOffset
	written    int64
	attempts   int32
	fromOrigin bool     // it was read from the origin
	counted    bool     // it is counted in queuedRecord.copies
	waits      bool     // it waits in its lane; guarded by the lock of keyQueues
	mailbox    *mailbox // of the lane
	message    *driver.Message[*sarama.ConsumerMessage]
}

// mailbox collects the copies about which a lane must ask again.
type mailbox struct {
	copies []*recordCopy // guarded by the lock of keyQueues
	notify func()        // called when the first copy is added; must not block
}

// verdict says what a lane does with a copy.
type verdict uint8

const (
	verdictRun       verdict = iota
	verdictWait              // in memory, for the first record of the queue, until the mailbox has it
	verdictPark              // on a level, until the first record may be settled
	verdictHold              // in memory for a short while, instead of parking
	verdictDrop              // it is a copy of a settled record, or out of date
	verdictUnordered         // it has no order: it runs
)

// A copy that waits for a due record which no lane holds yet asks again after a pause.
const (
	heldRecheck  = 50 * time.Millisecond // in memory
	levelRecheck = time.Second           // on a level
	fullRecheck  = 50 * time.Millisecond // while the levels are full
)

func newKeyQueues(onLevels *atomic.Int64) *keyQueues {
	return &keyQueues{queues: make(map[uint64]*keyQueue), onLevels: onLevels, loadedEnds: make(map[string]int64), ready: make(chan struct{}), highest: -1}
}

// startAt sets where this session reads the origin from.
func (queues *keyQueues) startAt(from int64) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	queues.from, queues.next = from, from
}

// highestOffset returns the highest origin offset that was seen on a level.
func (queues *keyQueues) highestOffset() int64 {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	return queues.highest
}

// ask decides about a copy that is due, or that the mailbox has named. roomy says whether the lane can hold it for a
// short while. until is set with verdictPark and verdictHold.
func (queues *keyQueues) ask(c *recordCopy, now time.Time, roomy bool) (v verdict, until time.Time) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if c.waits {
		return verdictWait, until // nothing has changed
	}
	if c.fromOrigin && c.offset >= queues.next {
		queues.next = c.offset + 1
		queues.reachedLocked(c.offset)
	}
	if _, known := queues.conflicts[c.keyOffset]; known {
		return verdictUnordered, until
	}
	queue, i, found := queues.findLocked(c)
	if !found {
		if queues.wasSettledLocked(c) {
			return verdictDrop, until
		}
		queue, i = queues.insertLocked(queue, i, c, queuedRecord{offset: c.offset, written: c.written, attempts: c.attempts, held: c})
		if !c.fromOrigin {
			queues.setOnLevelLocked(&queue.records[i], true)
		}
	} else if v := queues.claimLocked(queue, i, c); v != verdictRun {
		return v, until
	}
	it, first := &queue.records[i], queue.first()
	switch {
	case first == it:
		return verdictRun, until
	case first.held != nil:
		c.waits = true
		queue.waiting++
		return verdictWait, until
	}
	until = now.Add(levelRecheck)
	if due := time.UnixMilli(first.due); due.After(now) {
		until = due
	}
	if roomy && until.Sub(now) <= levelRecheck {
		if first.due <= now.UnixMilli() {
			until = now.Add(heldRecheck)
		}
		it.held, it.due = nil, until.UnixMilli()
		return verdictHold, until
	}
	return verdictPark, until
}

// claimLocked makes a copy the held one of its record, if it is the newest.
func (queues *keyQueues) claimLocked(queue *keyQueue, i int, c *recordCopy) verdict {
	it := &queue.records[i]
	switch {
	case it.held == c:
		return verdictRun // it asks again
	case it.written != c.written:
		queues.markConflictLocked(queue, i, c)
		return verdictUnordered
	case it.done, c.fromOrigin && !it.unread, c.attempts < it.attempts:
		// A record on the origin whose copy is on a level is out of date.
		queues.dropCopyLocked(queue, i, c)
		return verdictDrop
	case it.held != nil:
		// The held copy is settled soon. Then this copy is out of date or, if it is the next hop of the other, the
		// newest.
		queue.duplicates = append(queue.duplicates, c)
		c.waits = true
		return verdictWait
	}
	it.held, it.attempts, it.unread = c, c.attempts, false
	queues.setOnLevelLocked(it, !c.fromOrigin)
	return verdictRun
}

// wasSettledLocked reports whether this session settled the record of a copy that is not queued. It is false if that is
// not certain.
func (queues *keyQueues) wasSettledLocked(c *recordCopy) bool {
	if at, ok := queues.settled[c.keyOffset]; ok && at == c.written {
		return true
	}
	return !c.fromOrigin && !c.counted && c.offset >= queues.from && c.offset < queues.next
}

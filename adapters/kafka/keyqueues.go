package kafka

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/internal/driver"
)

// The order PerKey is one rule: a record may run only if no record of its key in
// its origin partition, with a lower origin offset, is unsettled. It does not
// matter where these are, on the origin or on a level, or in which order they come
// from there, so neither does what a crash has written twice.
//
// lines knows the unsettled records of one origin partition by key. Each has a
// line, sorted by origin offset: its records wait on a level (parked) or are in the
// hands of the lane that has read them. The lanes of the partition, its origin's and
// one for each topic on which messages wait, share it, and each decides about what
// it has read: it asks, and is told when it is to ask again. It is safe for
// concurrent use.
type keyQueues struct {
	mu       sync.Mutex
	queues   map[uint64]*keyQueue // by a hash: two keys in one line wait for each other, which does no harm
	spare    []*keyQueue
	onLevels *atomic.Int64 // records on levels, of the whole subscription

	// Origin offsets from from, below next, were taken up in this session: one of
	// them that is not in its line was settled by us. settled are others that were.
	from, next int64
	settled    map[keyOffset]int64 // when each was written to the origin
	// high is the highest origin offset that was seen on a level.
	highest int64
	// strays are records that share place and key with another one: the origin was
	// deleted and made anew. They have no order, and none is taken for a duplicate.
	conflicts map[keyOffset]struct{}
	// unread are the origin's records below high, which a session before this one has
	// not settled, in order. What was behind them may wait on a level and come first.
	unread []keyOffset

	loadedEnds map[string]int64 // of the topics on which messages wait, as they were when the session began
	ready      chan struct{}    // closed when all that waited then is known
}

// place is a record's key and its offset in the origin.
type keyOffset struct {
	key    uint64
	offset int64
}

// line is the unsettled records of a key.
type keyQueue struct {
	records    []queuedRecord // by offset; those before head are gone
	duplicates []*recordCopy  // in hand, while another copy of the same record is
	head       int
	waiting    int // how many in hand wait for the first
}

// item is one record of a line, of which there may be several copies.
type queuedRecord struct {
	offset       int64
	written      int64       // when it was written to the origin, in ms: with key and offset it says who it is
	due          int64       // while it is parked: when it comes back, in ms
	held         *recordCopy // the copy that a lane has in hand; nil while it is parked
	attempts     int32       // of the copy that has gone furthest: what has fewer is out of date
	copies       int32       // on levels, as they were when the session began
	done         bool        // only its other copies are waited for, to be dropped
	deadLettered bool        // a copy beside the one in hand was dead-lettered: what that one is written as is dropped
	unread       bool        // no copy is on a level: the origin's lane comes to it
	onLevel      bool        // the copy that counts is on a level, or was read there
}

// lineCopy is one copy of a record, as the lane has it that has read it.
type recordCopy struct {
	keyOffset
	written    int64
	attempts   int32
	fromOrigin bool     // it was read from the origin
	counted    bool     // it is one of its item's copies
	waits      bool     // to be told; guarded by the lines' lock
	mailbox    *mailbox // of the lane
	message    *driver.Message[*sarama.ConsumerMessage]
}

// mailbox is where a lane finds the copies that it is to ask for again.
type mailbox struct {
	copies []*recordCopy // guarded by the lines' lock
	notify func()        // is called when there are copies; it must not block
}

// verdict is the answer to a lane that asks for a copy.
type verdict uint8

const (
	verdictRun       verdict = iota // now
	verdictWait                     // for the first of its line, which is in hand; the mailbox says when to ask again
	verdictPark                     // until the first may be through: it is to be written to a level
	verdictHold                     // the same, where it is: parks for a short while, where the lane has room
	verdictDrop                     // it is a copy of what was settled, or has gone further
	verdictUnordered                // it has no order
)

// How long what waits for a record that is due, and that no lane has in hand yet,
// waits before it looks again.
const (
	heldRecheck  = 50 * time.Millisecond // where it is
	levelRecheck = time.Second           // on a level
)

func newKeyQueues(onLevels *atomic.Int64) *keyQueues {
	return &keyQueues{queues: make(map[uint64]*keyQueue), onLevels: onLevels, loadedEnds: make(map[string]int64), ready: make(chan struct{}), highest: -1}
}

// begin says from where the origin is read in this session.
func (queues *keyQueues) startAt(from int64) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	queues.from, queues.next = from, from
}

// highest is the highest origin offset that was seen on a level.
func (queues *keyQueues) highestOffset() int64 {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	return queues.highest
}

// ask says what is to be done with a copy whose time has come, or that the mailbox
// has named. roomy reports whether the lane can keep it for a short while. until is
// for parks and stays.
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

// take puts a copy into the hand of its item, if it is the copy that counts.
func (queues *keyQueues) claimLocked(queue *keyQueue, i int, c *recordCopy) verdict {
	it := &queue.records[i]
	switch {
	case it.held == c:
		return verdictRun // it was told to ask again
	case it.written != c.written:
		queues.markConflictLocked(queue, i, c)
		return verdictUnordered
	case it.done, c.fromOrigin && !it.unread, c.attempts < it.attempts:
		// What is on the origin and on a level has gone further there.
		queues.dropCopyLocked(queue, i, c)
		return verdictDrop
	case it.held != nil:
		// It is settled in a moment, and then this copy is out of date or, if it
		// was that other's next hop, the one that counts.
		queue.duplicates = append(queue.duplicates, c)
		c.waits = true
		return verdictWait
	}
	it.held, it.attempts, it.unread = c, c.attempts, false
	queues.setOnLevelLocked(it, !c.fromOrigin)
	return verdictRun
}

// wasSettled reports whether a copy that is not in its line was settled in this
// session. What is not sure is not dropped.
func (queues *keyQueues) wasSettledLocked(c *recordCopy) bool {
	if at, ok := queues.settled[c.keyOffset]; ok && at == c.written {
		return true
	}
	return !c.fromOrigin && !c.counted && c.offset >= queues.from && c.offset < queues.next
}

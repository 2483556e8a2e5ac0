// Package perkey keeps the order of keys over failures (redeliver.OrderThroughRetries).
//
// There is one rule: a record may run only if all records of its key with lower offsets in its origin partition are
// settled. The rule holds wherever these records are, and in whichever order they arrive. So duplicates after a crash
// do no harm.
//
// A [Session] has [Queues] for each partition of the origin, which the lanes of the partition and of its levels share.
// A [Loader] fills them before the first record runs. Each lane has a [Gate], which asks the queues whether a message
// may begin: a message behind a failed one of its key is parked on a level.
package perkey

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Session has the queues of one session. It is safe for concurrent use.
type Session struct {
	mu       sync.Mutex
	queues   map[int32]*Queues // by partition
	onLevels atomic.Int64      // records on levels, of all partitions
}

// Queues returns the queues of a partition of the origin.
func (s *Session) Queues(partition int32) *Queues {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues == nil {
		s.queues = make(map[int32]*Queues)
	}
	if s.queues[partition] == nil {
		s.queues[partition] = newQueues(&s.onLevels)
	}
	return s.queues[partition]
}

// Queues has the unsettled records of one origin partition by key, in the order of their origin offsets. A record is
// parked on a level, or held by the lane that has read a copy of it. A lane asks about each copy, and asks again when
// the copy appears in the lane's mailbox. Queues is safe for concurrent use.
type Queues struct {
	mu       sync.Mutex
	queues   map[uint64]*keyQueue // by hash: if two keys have one hash, they wait for each other, which does no harm
	spare    []*keyQueue
	onLevels *atomic.Int64 // records on levels, of the whole subscription

	// This session has read the origin's offsets in [from, next). Those without a queued record are settled, or have no
	// key. settled has the records that this session settled at other offsets.
	from, next int64
	settled    map[keyOffset]int64 // time of their write to the origin
	// oldest is the earliest time of a write to the origin that this session has read. An older record is from a log that
	// was deleted, or from an earlier session.
	oldest int64
	// originEnd returns the end of the origin's log, as far as its lane knows it. It is nil before that lane begins.
	originEnd func() int64
	// highest is the highest origin offset that was seen on a level.
	highest int64
	// conflicts are records that have the key and offset of another record, because the origin was deleted and created
	// again. They have no order, and none counts as a duplicate.
	conflicts map[keyOffset]struct{}
	// unread are the origin's records below highest that earlier sessions have not settled, in order. Later records of
	// their keys may be on a level and arrive first.
	unread []keyOffset

	loadedEnds map[string]int64 // end of each waiting topic when the session began
	ready      chan struct{}    // closed by Loader.Load
}

// keyOffset is a record's key and its offset in the origin.
type keyOffset struct {
	key    uint64
	offset int64
}

// keyQueue is the unsettled records of one key.
type keyQueue struct {
	records    []queuedRecord // by offset; those before head are removed
	duplicates []*Copy        // copies that a lane holds while another copy of their record is held
	head       int
	waiting    int // number of held copies that wait for the first record
}

// queuedRecord is one record of a queue. It may have several copies.
type queuedRecord struct {
	offset       int64
	written      int64 // time in the origin, Unix ms; with key and offset it identifies the record
	due          int64 // when a parked record comes back, in Unix milliseconds
	held         *Copy // the copy that a lane holds; nil if the record is parked
	attempts     int32 // of the newest copy; copies with fewer are out of date
	copies       int32 // loaded copies that are left
	done         bool  // settled; its other copies will be dropped
	deadLettered bool  // another copy than the held one was dead-lettered; the next copy is dropped
	unread       bool  // the origin's lane will read it; no copy is on a level
	onLevel      bool  // the newest copy is on a level, or was read there
	loaded       bool  // it was loaded, with all earlier ones of its key, when the session began
}

// Copy is one copy of a record, in the lane that has read it.
type Copy struct {
	keyOffset
	written    int64
	attempts   int32
	fromOrigin bool     // it was read from the origin
	chained    bool     // its lane lets it begin after those before it, or when they wait for a batch
	outdated   bool     // when its lane read it on the origin, a newer copy was on a level, or its record was settled
	counted    bool     // it is counted in queuedRecord.copies
	waits      bool     // it waits in its lane; guarded by the lock of Queues
	mailbox    *mailbox // of the lane

	// Used only by the lane.
	keyAllows bool      // its key lets it run, but another gate may not
	mustPark  bool      // it moves to a level, because records of its key come first
	parkUntil time.Time // if set, it parks until then
	unordered bool      // its record has no order
}

// mailbox collects the copies about which a lane must ask again.
type mailbox struct {
	copies []*Copy // guarded by the lock of Queues
	notify func()  // called when the first copy is added; must not block
}

// verdict says what a lane does with a copy.
type verdict uint8

const (
	verdictRun       verdict = iota
	verdictJoin              // in the batch for which the records before it wait
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
)

func newQueues(onLevels *atomic.Int64) *Queues {
	return &Queues{queues: make(map[uint64]*keyQueue), onLevels: onLevels, loadedEnds: make(map[string]int64), ready: make(chan struct{}), highest: -1}
}

// Await returns when the queues are loaded. It reports false if ctx ended first.
func (queues *Queues) Await(ctx context.Context) bool {
	select {
	case <-queues.ready:
		return true
	case <-ctx.Done():
		return false
	}
}

// highestOffset returns the highest origin offset that was seen on a level.
func (queues *Queues) highestOffset() int64 {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	return queues.highest
}

// ask decides about a copy that is due, or that the mailbox has named. roomy reports whether the lane can hold it for a
// short while. until is set with verdictPark and verdictHold.
func (queues *Queues) ask(c *Copy, now time.Time, roomy bool) (v verdict, until time.Time) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if c.waits {
		return verdictWait, until // nothing has changed
	}
	if c.outdated {
		return verdictDrop, until
	}
	if _, known := queues.conflicts[c.keyOffset]; known {
		queues.removeHeldLocked(c)
		return verdictUnordered, until
	}
	queue, i, found := queues.findLocked(c)
	if !found {
		if queues.wasSettledLocked(c) {
			return verdictDrop, until
		}
		queue = queues.insertLocked(queue, i, c, queuedRecord{offset: c.offset, written: c.written, attempts: c.attempts, held: c})
		if !c.fromOrigin {
			queue.records[i].setOnLevel(queues.onLevels, true)
		}
	} else if v := queues.claimLocked(queue, i, c); v != verdictRun {
		return v, until
	}
	rec, first := &queue.records[i], queue.first()
	switch {
	case first == rec && !queues.isAheadLocked(c, rec):
		return verdictRun, until
	case first == rec: // it waits until the origin's lane comes to it
	case c.chained && queue.allChained(i):
		return verdictJoin, until
	case first.held != nil:
		c.waits = true
		queue.waiting++
		return verdictWait, until
	}
	until = now.Add(levelRecheck)
	if due := time.UnixMilli(first.due); first != rec && due.After(now) {
		until = due
	}
	if roomy && until.Sub(now) <= levelRecheck {
		if first.due <= now.UnixMilli() {
			until = now.Add(heldRecheck)
		}
		rec.held, rec.due = nil, until.UnixMilli()
		queues.wakeLocked(c.key, queue, first == rec)
		return verdictHold, until
	}
	if soonest := now.Add(levelRecheck); !c.fromOrigin && until.Before(soonest) {
		until = soonest // the lane is full, and the copy comes back to it
	}
	return verdictPark, until
}

// isAheadLocked reports whether a copy on a level is ahead of the origin's lane: earlier records of its key, which this
// session has not read, may be unsettled. An earlier owner may have written it after this session began: a process that was
// stopped for longer than its session, and still retries or parks what it had read. A record behind the end of the
// origin's log is from a log that is gone.
func (queues *Queues) isAheadLocked(c *Copy, rec *queuedRecord) bool {
	return !c.fromOrigin && !c.counted && !rec.loaded && c.offset >= queues.next && (queues.originEnd == nil || c.offset < queues.originEnd())
}

// skip records that the origin's lane has read a record that is settled or has no key.
func (queues *Queues) skip(offset, written int64) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	queues.readLocked(offset, written)
}

// place queues a copy that the origin's lane has read. It is called in the order of the log: the lane may ask about later
// records before.
func (queues *Queues) place(c *Copy) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	queues.readLocked(c.offset, c.written)
	if _, known := queues.conflicts[c.keyOffset]; known {
		return
	}
	queue, i, found := queues.findLocked(c)
	switch {
	case !found && queues.wasSettledLocked(c):
		c.outdated = true
	case !found:
		queues.insertLocked(queue, i, c, queuedRecord{offset: c.offset, written: c.written, attempts: c.attempts, held: c})
	case queue.records[i].written != c.written: // ask handles the conflict
	case queue.records[i].isStale(c):
		c.outdated = true
	default:
		c.outdated = queues.claimLocked(queue, i, c) == verdictDrop
	}
}

// readLocked records that a record of the origin was read.
func (queues *Queues) readLocked(offset, written int64) {
	if offset < queues.next {
		return
	}
	queues.next = offset + 1
	if written != 0 && (queues.oldest == 0 || written < queues.oldest) {
		queues.oldest = written
	}
	queues.reachedLocked(offset)
}

// removeHeldLocked removes the record of a held copy that has no order any more. Later records of its key do not wait for it.
func (queues *Queues) removeHeldLocked(c *Copy) {
	queue, i, found := queues.findLocked(c)
	if !found || queue.records[i].held != c {
		return
	}
	queue.endWait(c)
	first := queue.isFirst(i)
	queues.removeLocked(queue, i)
	queues.wakeLocked(c.key, queue, first)
}

// claimLocked makes a copy the held one of its record, if it is the newest.
func (queues *Queues) claimLocked(queue *keyQueue, i int, c *Copy) verdict {
	rec := &queue.records[i]
	switch {
	case rec.deadLettered && (rec.held == nil || rec.held == c): // and no copy of it runs
		queues.settleLocked(queue, i, c)
		return verdictDrop
	case rec.held == c:
		return verdictRun // it asks again
	case rec.written != c.written:
		queues.markConflictLocked(queue, i, c)
		return verdictUnordered
	case rec.isStale(c):
		queues.dropCopyLocked(queue, i, c)
		return verdictDrop
	case rec.held != nil:
		// The held copy is settled soon. Then this copy is out of date or, if it is the next hop of the other, the
		// newest.
		queue.duplicates = append(queue.duplicates, c)
		c.waits = true
		return verdictWait
	}
	rec.held, rec.attempts, rec.unread = c, c.attempts, false
	rec.setOnLevel(queues.onLevels, !c.fromOrigin)
	return verdictRun
}

// isStale reports whether a copy of the record, which is not held, is out of date: the record is settled, or there is a
// newer copy. A record on the origin is out of date if a copy is on a level.
func (rec *queuedRecord) isStale(c *Copy) bool {
	return rec.done || c.fromOrigin && !rec.unread || c.attempts < rec.attempts
}

// wasSettledLocked reports whether this session certainly settled the record of a copy that is not queued.
func (queues *Queues) wasSettledLocked(c *Copy) bool {
	if at, ok := queues.settled[c.keyOffset]; ok && at == c.written {
		return true
	}
	if c.written != 0 && c.written < queues.oldest {
		return false
	}
	return !c.fromOrigin && !c.counted && c.offset >= queues.from && c.offset < queues.next
}

// reachedLocked removes expected records before offset, which were not read because they are deleted.
func (queues *Queues) reachedLocked(offset int64) {
	for len(queues.unread) > 0 && queues.unread[0].offset < offset {
		c := Copy{keyOffset: queues.unread[0]}
		queues.unread = queues.unread[1:]
		if queue, i, found := queues.findLocked(&c); found && queue.records[i].unread && queue.records[i].held == nil {
			first := queue.isFirst(i)
			queues.removeLocked(queue, i)
			queues.wakeLocked(c.key, queue, first)
		}
	}
}

package kafka

import (
	"slices"
	"time"
)

// What the lanes tell of their copies, and where they find what to ask for again.

// done says that the record of a copy was acked or dead-lettered.
func (queues *keyQueues) settle(c *recordCopy) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if queue, i, found := queues.findLocked(c); found && queue.records[i].held == c {
		queues.settleLocked(queue, i, c)
	}
}

// bury says that the record of a copy was dead-lettered on its way to a level, which
// refuses it. It may have asked, or, for a hop, not. All its other copies are dropped
// when they come, but for one in hand.
func (queues *keyQueues) deadLetter(c *recordCopy) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	queue, i, found := queues.findLocked(c)
	if !found || queue.records[i].written != c.written {
		return
	}
	if it := &queue.records[i]; it.held != nil && it.held != c {
		// That one runs, or this is what became of it, which its lane has not told
		// yet. When it does there is nothing left to wait for.
		it.deadLettered = true
		queues.dropCopyLocked(queue, i, c)
		return
	}
	queues.settleLocked(queue, i, c)
}

// end settles the record of a copy, and lets those behind it go.
func (queues *keyQueues) settleLocked(queue *keyQueue, i int, c *recordCopy) {
	it := &queue.records[i]
	it.held, it.done = nil, true
	queues.setOnLevelLocked(it, false)
	if c.offset < queues.from || c.offset >= queues.next {
		if queues.settled == nil {
			queues.settled = make(map[keyOffset]int64)
		}
		queues.settled[c.keyOffset] = c.written
	}
	first := queue.isFirst(i)
	queues.dropCopyLocked(queue, i, c)
	queues.wakeLocked(c.key, queue, first)
}

// park says that the record of a copy was written to a level, to come back with so
// many attempts behind it when it is due.
func (queues *keyQueues) park(c *recordCopy, attempts int, due time.Time) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	queue, i, found := queues.findLocked(c)
	if !found || queue.records[i].held != c {
		return
	}
	it := &queue.records[i]
	if it.deadLettered {
		queues.settleLocked(queue, i, c)
		return
	}
	it.held, it.due, it.attempts = nil, due.UnixMilli(), max(it.attempts, int32(attempts))
	queues.setOnLevelLocked(it, true)
	if c.counted {
		it.copies--
	}
	first := queue.isFirst(i)
	if _, known := queues.conflicts[c.keyOffset]; known {
		queues.removeLocked(queue, i)
	}
	queues.wakeLocked(c.key, queue, first)
}

// hopped says that a copy moved on to another level without having asked.
func (queues *keyQueues) hopped(c *recordCopy) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if queue, i, found := queues.findLocked(c); found && c.counted {
		queue.records[i].copies--
		queues.removeIfDoneLocked(c.key, queue, i)
	}
}

// leave has a copy wait no more in hand: the lane writes it to a level. It is false
// for one that was told to ask again, or of whose record another copy is in hand.
func (queues *keyQueues) stopWaiting(c *recordCopy) bool {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	queue, i, found := queues.findLocked(c)
	if !found || queue.records[i].held != c || !c.waits {
		return false
	}
	c.waits = false
	queue.waiting--
	return true
}

// giveUp says that the lane has a copy no more and leaves it unsettled: its record
// is where it was read, and nothing behind it may run.
func (queues *keyQueues) giveUp(c *recordCopy) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	queue, i, found := queues.findLocked(c)
	if !found {
		return
	}
	if queue.records[i].held != c {
		queue.duplicates = slices.DeleteFunc(queue.duplicates, func(t *recordCopy) bool { return t == c })
		return
	}
	if c.waits {
		c.waits = false
		queue.waiting--
	}
	queue.records[i].held = nil
	queues.wakeLocked(c.key, queue, queue.isFirst(i))
}

// stale reports whether a copy that is to hop, which is nobody's business, is out of
// date: then it is dropped.
func (queues *keyQueues) dropStale(c *recordCopy) bool {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if _, known := queues.conflicts[c.keyOffset]; known {
		return false
	}
	queue, i, found := queues.findLocked(c)
	if !found {
		return queues.wasSettledLocked(c)
	}
	it := &queue.records[i]
	if it.written != c.written || !it.done && c.attempts >= it.attempts {
		return false
	}
	queues.dropCopyLocked(queue, i, c)
	return true
}

// seen says that a lane has read a copy on a level, which is due then.
func (queues *keyQueues) addSeen(c *recordCopy, due time.Time) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if _, known := queues.conflicts[c.keyOffset]; known || c.counted {
		return
	}
	queues.highest = max(queues.highest, c.offset)
	queue, i, found := queues.findLocked(c)
	switch {
	case found && queue.records[i].written == c.written:
		it := &queue.records[i]
		it.attempts, it.unread = max(it.attempts, c.attempts), false
		queues.setOnLevelLocked(it, true)
		if it.held == nil {
			it.due = due.UnixMilli()
		}
	case !found && !queues.wasSettledLocked(c):
		queue, i = queues.insertLocked(queue, i, c, queuedRecord{offset: c.offset, written: c.written, attempts: c.attempts, due: due.UnixMilli()})
		queues.setOnLevelLocked(&queue.records[i], true)
	}
}

// collect empties a mailbox.
func (queues *keyQueues) collect(box *mailbox) []*recordCopy {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	copies := box.copies
	box.copies = nil
	return copies
}

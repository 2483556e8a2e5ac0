package perkey

import (
	"slices"
	"time"
)

// The methods in this file record the moves of copies that lanes report.

// settle records that the record of a copy was acked.
func (queues *Queues) settle(c *Copy) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if queue, i, found := queues.findLocked(c); found && queue.records[i].held == c {
		queues.settleLocked(queue, i, c)
	}
}

// deadLetter records that a copy was dead-lettered. A copy that hops or has expired has not asked, so another one may be
// held. Copies not held are dropped when they arrive.
func (queues *Queues) deadLetter(c *Copy) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	queue, i, found := queues.findLocked(c)
	if !found || queue.records[i].written != c.written {
		return
	}
	if rec := &queue.records[i]; rec.held != nil && rec.held != c {
		// The held copy runs, or was moved here and its lane has not reported that yet. The report will settle the
		// record.
		rec.deadLettered = true
		queues.dropCopyLocked(queue, i, c)
		return
	}
	queues.settleLocked(queue, i, c)
}

// settleLocked settles the record of a copy and wakes the copies behind it.
func (queues *Queues) settleLocked(queue *keyQueue, i int, c *Copy) {
	rec := &queue.records[i]
	if rec.held == c {
		queue.endWait(c)
	}
	rec.held, rec.done = nil, true
	rec.setOnLevel(queues.onLevels, false)
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

// park records that a copy was written to a level after this many attempts. The record comes back when it is due.
func (queues *Queues) park(c *Copy, attempts int, due time.Time) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	queue, i, found := queues.findLocked(c)
	if !found || queue.records[i].held != c {
		return
	}
	rec := &queue.records[i]
	if rec.deadLettered {
		queues.settleLocked(queue, i, c)
		return
	}
	rec.held, rec.due, rec.attempts = nil, due.UnixMilli(), max(rec.attempts, int32(attempts))
	rec.setOnLevel(queues.onLevels, true)
	if c.counted {
		rec.copies--
	}
	first := queue.isFirst(i)
	if _, known := queues.conflicts[c.keyOffset]; known {
		queues.removeLocked(queue, i)
	}
	queues.wakeLocked(c.key, queue, first)
}

// hopped records that a copy moved to another level without asking.
func (queues *Queues) hopped(c *Copy) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if queue, i, found := queues.findLocked(c); found && c.counted {
		queue.records[i].copies--
		queues.removeIfDoneLocked(c.key, queue, i)
	}
}

// stopWaiting ends the wait of a held copy, because the lane writes it to a level. It returns false if the copy was
// woken, or another copy of its record is held.
func (queues *Queues) stopWaiting(c *Copy) bool {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	queue, i, found := queues.findLocked(c)
	if !found || queue.records[i].held != c || !c.waits {
		return false
	}
	queue.endWait(c)
	return true
}

// giveUp records that the lane leaves a copy unsettled. The record is still where it was read, and blocks those behind
// it.
func (queues *Queues) giveUp(c *Copy) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	queue, i, found := queues.findLocked(c)
	if !found {
		return
	}
	if queue.records[i].held != c {
		queue.duplicates = slices.DeleteFunc(queue.duplicates, func(t *Copy) bool { return t == c })
		return
	}
	queue.endWait(c)
	queue.records[i].held = nil
	queues.wakeLocked(c.key, queue, queue.isFirst(i))
}

// dropStale drops a copy that should hop or has expired if it is stale, and reports whether it was stale. The held copy is
// never stale, as in claimLocked.
func (queues *Queues) dropStale(c *Copy) bool {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if c.outdated {
		return true
	}
	if _, known := queues.conflicts[c.keyOffset]; known {
		return false
	}
	queue, i, found := queues.findLocked(c)
	if !found {
		return queues.wasSettledLocked(c)
	}
	rec := &queue.records[i]
	if rec.held == c || rec.written != c.written || !rec.isStale(c) {
		return false
	}
	queues.dropCopyLocked(queue, i, c)
	return true
}

// addSeen records that a lane has read a copy on a level, and when it is due.
func (queues *Queues) addSeen(c *Copy, due time.Time) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if _, known := queues.conflicts[c.keyOffset]; known || c.counted {
		return
	}
	queues.highest = max(queues.highest, c.offset)
	queue, i, found := queues.findLocked(c)
	switch {
	case found && queue.records[i].written == c.written:
		rec := &queue.records[i]
		rec.attempts, rec.unread = max(rec.attempts, c.attempts), false
		rec.setOnLevel(queues.onLevels, true)
		if rec.held == nil {
			rec.due = due.UnixMilli()
		}
	case !found && !queues.wasSettledLocked(c):
		queue = queues.insertLocked(queue, i, c, queuedRecord{offset: c.offset, written: c.written, attempts: c.attempts, due: due.UnixMilli()})
		queue.records[i].setOnLevel(queues.onLevels, true)
		queues.wakeLocked(c.key, queue, queue.isFirst(i)) // those that wait for a later record are parked
	}
}

// collect returns and removes the copies in a mailbox.
func (queues *Queues) collect(box *mailbox) []*Copy {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	copies := box.copies
	box.copies = nil
	return copies
}

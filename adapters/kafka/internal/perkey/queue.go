package perkey

import (
	"slices"
	"sync/atomic"
)

// findLocked returns the queue of a copy's key, or nil, and the index at which the copy's record is or would be.
func (queues *Queues) findLocked(c *Copy) (queue *keyQueue, i int, found bool) {
	if queue = queues.queues[c.key]; queue == nil {
		return nil, 0, false
	}
	if n := len(queue.records); queue.head == n || queue.records[n-1].offset < c.offset { // the usual case
		return queue, n, false
	}
	i, found = slices.BinarySearchFunc(queue.records[queue.head:], c.offset, func(rec queuedRecord, offset int64) int {
		switch {
		case rec.offset < offset:
			return -1
		case rec.offset > offset:
			return 1
		default:
			return 0
		}
	})
	return queue, queue.head + i, found
}

// insertLocked inserts a record at an index of queue, and returns queue. If queue is nil, it makes one.
func (queues *Queues) insertLocked(queue *keyQueue, i int, c *Copy, rec queuedRecord) *keyQueue {
	if queue == nil {
		if n := len(queues.spare); n > 0 {
			queue, queues.spare = queues.spare[n-1], queues.spare[:n-1]
		} else {
			queue = new(keyQueue)
		}
		queues.queues[c.key] = queue
	}
	queue.records = slices.Insert(queue.records, i, rec)
	return queue
}

// setOnLevel sets whether a record is on a level. count is the number of those that are.
func (rec *queuedRecord) setOnLevel(count *atomic.Int64, onLevel bool) {
	if rec.onLevel == onLevel {
		return
	}
	rec.onLevel = onLevel
	if onLevel {
		count.Add(1)
	} else {
		count.Add(-1)
	}
}

// first returns the first unsettled record, or nil.
func (queue *keyQueue) first() *queuedRecord {
	for i := queue.head; i < len(queue.records); i++ {
		if !queue.records[i].done {
			return &queue.records[i]
		}
	}
	return nil
}

// allChained reports whether all records before index i are settled, or were let in by the lane that reads the origin.
func (queue *keyQueue) allChained(i int) bool {
	for j := queue.head; j < i; j++ {
		if rec := &queue.records[j]; !rec.done && (rec.held == nil || !rec.held.chained) {
			return false
		}
	}
	return true
}

// isFirst reports whether all records before index i are settled.
func (queue *keyQueue) isFirst(i int) bool {
	for j := queue.head; j < i; j++ {
		if !queue.records[j].done {
			return false
		}
	}
	return true
}

// dropCopyLocked removes a copy, and with the last copy of a settled record the record itself.
func (queues *Queues) dropCopyLocked(queue *keyQueue, i int, c *Copy) {
	if c.counted {
		queue.records[i].copies--
	}
	queues.removeIfDoneLocked(c.key, queue, i)
}

func (queues *Queues) removeIfDoneLocked(key uint64, queue *keyQueue, i int) {
	if rec := &queue.records[i]; rec.done && rec.copies <= 0 {
		queues.removeLocked(queue, i)
		queues.removeIfEmptyLocked(key, queue)
	}
}

// removeLocked removes a record that no lane holds.
func (queues *Queues) removeLocked(queue *keyQueue, i int) {
	queue.records[i].setOnLevel(queues.onLevels, false)
	if i > queue.head {
		queue.records = slices.Delete(queue.records, i, i+1)
		return
	}
	queue.records[i] = queuedRecord{}
	queue.head++
	if queue.head >= 64 && queue.head > len(queue.records)/2 {
		n := copy(queue.records, queue.records[queue.head:])
		clear(queue.records[n:])
		queue.records, queue.head = queue.records[:n], 0
	}
}

// maxSpare bounds the empty queues that are kept, and maxSpareRoom the capacity of each.
const (
	maxSpare     = 4096
	maxSpareRoom = 8
)

// removeIfEmptyLocked removes a queue that has neither records nor duplicates.
func (queues *Queues) removeIfEmptyLocked(key uint64, queue *keyQueue) {
	if queues.queues[key] != queue || queue.head < len(queue.records) || len(queue.duplicates) > 0 {
		return
	}
	delete(queues.queues, key)
	if len(queues.spare) < maxSpare && cap(queue.records) <= maxSpareRoom {
		queue.records, queue.head = queue.records[:0], 0
		queues.spare = append(queues.spare, queue)
	}
}

// wakeLocked makes copies of a queue ask again after one of its records was settled, parked or given up. first reports
// whether that was the first record.
func (queues *Queues) wakeLocked(key uint64, queue *keyQueue, first bool) {
	for _, c := range queue.duplicates {
		c.waits = false
		c.notify()
	}
	queue.duplicates = nil
	if next := queue.first(); first && next != nil {
		switch {
		case next.held == nil && queue.waiting > 0: // copies that waited for a held record are parked now
			for i := queue.head; i < len(queue.records) && queue.waiting > 0; i++ {
				queue.wakeCopy(queue.records[i].held)
			}
		case next.held != nil:
			queue.wakeCopy(next.held)
		}
	}
	queues.removeIfEmptyLocked(key, queue)
}

func (queue *keyQueue) wakeCopy(c *Copy) {
	if c != nil && queue.endWait(c) {
		c.notify()
	}
}

// endWait ends the wait of a held copy for the first record, and reports whether it waited.
func (queue *keyQueue) endWait(c *Copy) bool {
	waited := c.waits
	if waited {
		c.waits = false
		queue.waiting--
	}
	return waited
}

// notify puts a copy into its lane's mailbox.
func (c *Copy) notify() {
	c.mailbox.copies = append(c.mailbox.copies, c)
	if len(c.mailbox.copies) == 1 {
		c.mailbox.notify()
	}
}

// markConflictLocked records that two different records have the same key and offset.
func (queues *Queues) markConflictLocked(queue *keyQueue, i int, c *Copy) {
	queues.addConflictLocked(c.keyOffset)
	if queue.records[i].held == nil {
		first := queue.isFirst(i)
		queues.removeLocked(queue, i)
		queues.wakeLocked(c.key, queue, first)
	}
}

func (queues *Queues) addConflictLocked(p keyOffset) {
	if queues.conflicts == nil {
		queues.conflicts = make(map[keyOffset]struct{})
	}
	queues.conflicts[p] = struct{}{}
}

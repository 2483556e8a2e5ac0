package kafka

import (
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/perkey"
)

// maxSpan bounds the records between the lowest unsettled one and the highest that has begun.
const maxSpan = 65_536

// tracker records which records of a partition are settled, and how far the group may commit: up to the lowest
// unsettled one. It numbers records in the order in which they are read, because offsets may have gaps.
type tracker struct {
	ring  []tracked // its length is a power of two
	first uint64    // number of the lowest unsettled record
	next  uint64    // number of the record that is read next
	mark  int64     // offset to commit: all below it are settled
}

// tracked is one record.
type tracked struct {
	offset  int64
	bytes   int32 // in memory, until it begins
	settled bool
	waiting *waitState // nil for a first delivery without a key queue
}

// queuedCopy returns the record's copy in a key queue, or nil.
func (r *tracked) queuedCopy() *perkey.Copy {
	if r.waiting == nil {
		return nil
	}
	return r.waiting.queued
}

// add registers a record that was read and returns its number.
func (t *tracker) add(offset int64) uint64 {
	if n := t.next - t.first; n == uint64(len(t.ring)) {
		t.grow()
	}
	if t.first == t.next && offset < t.mark { // the log's start moved between sarama's question and ours
		t.mark = offset
	}
	t.ring[t.next&uint64(len(t.ring)-1)] = tracked{offset: offset}
	t.next++
	return t.next - 1
}

func (t *tracker) grow() {
	bigger := make([]tracked, max(256, 2*len(t.ring)))
	for n := t.first; n < t.next; n++ {
		bigger[n&uint64(len(bigger)-1)] = t.ring[n&uint64(len(t.ring)-1)]
	}
	t.ring = bigger
}

// settle marks a record as settled. It reports whether mark has moved.
func (t *tracker) settle(number uint64) (moved bool) {
	r := t.record(number)
	r.settled, r.waiting = true, nil
	for t.first < t.next && t.record(t.first).settled {
		t.mark = t.record(t.first).offset + 1
		t.first++
		moved = true
	}
	return moved
}

// record returns a record that is not below the lowest unsettled one.
func (t *tracker) record(number uint64) *tracked { return &t.ring[number&uint64(len(t.ring)-1)] }

// span returns the number of records from the lowest unsettled one to the end of what was read.
func (t *tracker) span() int { return int(t.next - t.first) }

// above returns the settled records above the lowest unsettled one.
func (t *tracker) above() (all commitmeta.Runs) {
	for n := t.first; n < t.next; n++ {
		r := t.record(n)
		if !r.settled {
			continue
		}
		if last := len(all) - 1; last >= 0 && n > t.first && t.record(n-1).settled {
			all[last].To = r.offset + 1 // there is no record between them
		} else {
			all = append(all, commitmeta.Run{From: r.offset, To: r.offset + 1})
		}
	}
	return all
}

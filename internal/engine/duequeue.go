package engine

import (
	"cmp"
	"slices"
	"time"
)

// DueQueue is a queue of items that wait for their times: a heap ordered by time, first in first out among equals. The
// zero value is empty. It is not safe for concurrent use.
type DueQueue[T any] struct {
	items []dueItem[T]
	seq   uint64
}

type dueItem[T any] struct {
	at    time.Time
	seq   uint64
	value T
}

// Put keeps value until at.
func (q *DueQueue[T]) Put(at time.Time, value T) {
	q.seq++
	q.items = append(q.items, dueItem[T]{at, q.seq, value})
	for i := len(q.items) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			break
		}
		q.items[i], q.items[parent] = q.items[parent], q.items[i]
		i = parent
	}
}

// Len returns the number of items.
func (q *DueQueue[T]) Len() int { return len(q.items) }

// Next returns the time of the first item. ok is false if there is none.
func (q *DueQueue[T]) Next() (at time.Time, ok bool) {
	if len(q.items) == 0 {
		return time.Time{}, false
	}
	return q.items[0].at, true
}

// Pop removes and returns the first item, if its time is not after now.
func (q *DueQueue[T]) Pop(now time.Time) (value T, ok bool) {
	if len(q.items) == 0 || q.items[0].at.After(now) {
		return value, false
	}
	value = q.items[0].value
	n := len(q.items) - 1
	q.items[0] = q.items[n]
	q.items[n] = dueItem[T]{} // for the garbage collector
	q.items = q.items[:n]
	for i := 0; ; {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && q.less(child+1, child) {
			child++
		}
		if !q.less(child, i) {
			break
		}
		q.items[i], q.items[child] = q.items[child], q.items[i]
		i = child
	}
	return value, true
}

// Delete removes the items for which remove returns true. The others keep their times and their order.
func (q *DueQueue[T]) Delete(remove func(T) bool) {
	q.items = slices.DeleteFunc(q.items, func(i dueItem[T]) bool { return remove(i.value) })
	// A sorted slice is a heap.
	slices.SortFunc(q.items, func(a, b dueItem[T]) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.seq, b.seq)) })
}

// less reports whether item i comes before item j.
func (q *DueQueue[T]) less(i, j int) bool {
	a, b := q.items[i], q.items[j]
	if a.at.Equal(b.at) {
		return a.seq < b.seq
	}
	return a.at.Before(b.at)
}

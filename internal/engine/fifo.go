package engine

import (
	"iter"
	"slices"
)

// FIFO is a first in, first out queue. The zero value is empty.
type FIFO[T any] struct {
	items []T
	head  int
}

// Empty reports whether the queue has no items.
func (q *FIFO[T]) Empty() bool { return q.head == len(q.items) }

// Len returns the number of items.
func (q *FIFO[T]) Len() int { return len(q.items) - q.head }

// Peek returns the first item; there must be one.
func (q *FIFO[T]) Peek() T { return q.items[q.head] }

// Push puts an item behind the others.
func (q *FIFO[T]) Push(item T) { q.items = append(q.items, item) }

// Pop removes and returns the first item; there must be one.
func (q *FIFO[T]) Pop() T {
	var none T
	item := q.items[q.head]
	q.items[q.head] = none
	q.head++
	switch {
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
	case q.head >= 1024 && q.head > len(q.items)/2: // a queue that is never empty must not grow without limit
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return item
}

// Delete removes the items for which remove returns true.
func (q *FIFO[T]) Delete(remove func(T) bool) {
	q.items, q.head = slices.DeleteFunc(q.items[q.head:], remove), 0
}

// All returns an iterator over the items. The queue must not change meanwhile.
func (q *FIFO[T]) All() iter.Seq[T] { return slices.Values(q.items[q.head:]) }

// RemoveUntil calls f for the items in their order, and removes those for which remove is true, until stop is true.
func (q *FIFO[T]) RemoveUntil(f func(T) (remove, stop bool)) {
	var kept []T // usually none
	for !q.Empty() {
		item := q.Peek()
		remove, stop := f(item)
		if stop {
			break
		}
		q.Pop()
		if !remove {
			kept = append(kept, item)
		}
	}
	if len(kept) > 0 {
		q.items, q.head = append(kept, q.items[q.head:]...), 0
	}
}

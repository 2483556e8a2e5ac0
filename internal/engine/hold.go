package engine

import (
	"cmp"
	"slices"
	"time"
)

// Hold is a bounded queue of items that wait for their times: a heap ordered by time, first in first out among equals.
// It is not safe for concurrent use; one goroutine owns it.
type Hold[T any] struct {
	items []held[T]
	limit int
	seq   uint64
	last  time.Time
}

type held[T any] struct {
	at    time.Time
	seq   uint64
	value T
}

// NewHold returns a hold for at most limit items. A limit below 1 counts as 1.
func NewHold[T any](limit int) *Hold[T] { return &Hold[T]{limit: max(1, limit)} }

// Put keeps value until at. It returns false, and keeps nothing, when the hold is full.
func (h *Hold[T]) Put(at time.Time, value T) bool {
	if len(h.items) >= h.limit {
		return false
	}
	h.seq++
	h.last = at
	h.items = append(h.items, held[T]{at, h.seq, value})
	for i := len(h.items) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			break
		}
		h.items[i], h.items[parent] = h.items[parent], h.items[i]
		i = parent
	}
	return true
}

// Len returns the number of items held.
func (h *Hold[T]) Len() int { return len(h.items) }

// Full reports whether Put would return false.
func (h *Hold[T]) Full() bool { return len(h.items) >= h.limit }

// Next returns the time of the first item. ok is false if there is none.
func (h *Hold[T]) Next() (at time.Time, ok bool) {
	if len(h.items) == 0 {
		return time.Time{}, false
	}
	return h.items[0].at, true
}

// Last returns the time of the item that was put last; zero before the first Put.
func (h *Hold[T]) Last() time.Time { return h.last }

// Pop removes and returns the first item, if its time is not after now.
func (h *Hold[T]) Pop(now time.Time) (value T, ok bool) {
	if len(h.items) == 0 || h.items[0].at.After(now) {
		return value, false
	}
	value = h.items[0].value
	n := len(h.items) - 1
	h.items[0] = h.items[n]
	h.items[n] = held[T]{} // for the garbage collector
	h.items = h.items[:n]
	for i := 0; ; {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && h.less(child+1, child) {
			child++
		}
		if !h.less(child, i) {
			break
		}
		h.items[i], h.items[child] = h.items[child], h.items[i]
		i = child
	}
	return value, true
}

// Delete removes the items for which gone reports true. The others keep their times and their order.
func (h *Hold[T]) Delete(gone func(T) bool) {
	h.items = slices.DeleteFunc(h.items, func(i held[T]) bool { return gone(i.value) })
	// A sorted slice is a heap.
	slices.SortFunc(h.items, func(a, b held[T]) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.seq, b.seq)) })
}

func (h *Hold[T]) less(i, j int) bool {
	a, b := h.items[i], h.items[j]
	if a.at.Equal(b.at) {
		return a.seq < b.seq
	}
	return a.at.Before(b.at)
}

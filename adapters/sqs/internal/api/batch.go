package api

import (
	"sync"
	"time"
)

// Batcher gathers items into requests of up to ten. An item waits up to linger for others, and again if the first
// request had no room for it. While all workers are busy, new items wait for the next request. It is safe for
// concurrent use.
type Batcher[T any] struct {
	maxWorkers int
	maxBytes   int // of all items of a request; 0 means no limit
	size       func(T) int
	flush      func([]T) // sends one request

	mu      sync.Mutex
	linger  time.Duration
	waiting []T
	due     bool        // the waiting items have lingered
	timer   *time.Timer // makes them due
	running int         // workers
}

// NewBatcher returns a batcher without items. size returns the bytes of an item; it may be nil if maxBytes is 0.
func NewBatcher[T any](linger time.Duration, maxWorkers, maxBytes int, size func(T) int, flush func([]T)) *Batcher[T] {
	return &Batcher[T]{linger: linger, maxWorkers: maxWorkers, maxBytes: maxBytes, size: size, flush: flush}
}

// Add adds an item to the next request.
func (b *Batcher[T]) Add(item T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, item)
	b.startLocked()
}

// StopLingering makes waiting and later items go at once.
func (b *Batcher[T]) StopLingering() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.linger = 0
	b.startLocked()
}

// startLocked starts workers while requests are ready and workers are free. It sets the timer for the other items.
func (b *Batcher[T]) startLocked() {
	for b.running < b.maxWorkers && (b.due || b.linger == 0 || len(b.waiting) >= MaxBatch) && len(b.waiting) > 0 {
		b.running++
		go b.work(b.takeBatchLocked())
	}
	if len(b.waiting) == 0 || b.linger == 0 || b.due || b.timer != nil {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(b.linger, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.timer == timer {
			b.due, b.timer = true, nil
			b.startLocked()
		}
	})
	b.timer = timer
}

func (b *Batcher[T]) work(items []T) {
	b.flush(items)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	b.startLocked()
}

// takeBatchLocked returns the items of the next request.
func (b *Batcher[T]) takeBatchLocked() []T {
	n, bytes := 0, 0
	for n < len(b.waiting) && n < MaxBatch {
		if b.maxBytes > 0 {
			bytes += b.size(b.waiting[n])
			if n > 0 && bytes > b.maxBytes {
				break
			}
		}
		n++
	}
	items := make([]T, n)
	copy(items, b.waiting)
	rest := copy(b.waiting, b.waiting[n:])
	clear(b.waiting[rest:])
	b.waiting = b.waiting[:rest]
	b.due = rest > 0 && n < MaxBatch // the first request had no room for the rest
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	return items
}

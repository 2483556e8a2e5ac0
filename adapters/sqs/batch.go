package sqs

import (
	"sync"
	"time"
)

// batcher gathers items into requests of up to ten. An item waits up to linger for others, and once more if the first
// request had no room for it. While all workers are busy, new items wait for the next request. It is safe for
// concurrent use.
type batcher[T any] struct {
	linger     time.Duration
	maxWorkers int
	maxBytes   int // of all items of a request; 0 means no limit
	size       func(T) int
	flush      func([]T) // sends one request; it must not retain the slice

	mu         sync.Mutex
	waiting    []T
	collecting bool // a worker waits for more items
	running    int
	full       chan struct{} // signals that ten items wait
	lingerOff  bool
}

func newBatcher[T any](linger time.Duration, maxWorkers, maxBytes int, size func(T) int, flush func([]T)) *batcher[T] {
	return &batcher[T]{linger: linger, maxWorkers: maxWorkers, maxBytes: maxBytes, size: size, flush: flush, full: make(chan struct{}, 1)}
}

// add adds an item to the next request.
func (b *batcher[T]) add(item T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, item)
	if len(b.waiting) >= maxBatch {
		b.signalFull()
	}
	b.startWorkerLocked()
}

// stopLingering makes waiting and later items go at once.
func (b *batcher[T]) stopLingering() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lingerOff = true
	b.signalFull()
}

func (b *batcher[T]) signalFull() {
	select {
	case b.full <- struct{}{}:
	default:
	}
}

// startWorkerLocked starts a worker if one is needed.
func (b *batcher[T]) startWorkerLocked() {
	if len(b.waiting) > 0 && !b.collecting && b.running < b.maxWorkers {
		b.collecting = true
		b.running++
		go b.work()
	}
}

func (b *batcher[T]) work() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if b.linger > 0 && len(b.waiting) < maxBatch && !b.lingerOff {
			b.mu.Unlock()
			timer := time.NewTimer(b.linger)
			select {
			case <-b.full:
			case <-timer.C:
			}
			timer.Stop()
			b.mu.Lock()
		}
		items := b.takeBatchLocked()
		b.collecting = false
		b.startWorkerLocked()
		b.mu.Unlock()
		if len(items) > 0 {
			b.flush(items)
		}
		b.mu.Lock()
		if len(b.waiting) == 0 || b.collecting {
			b.running--
			return
		}
		b.collecting = true
	}
}

// takeBatchLocked returns the items of the next request.
func (b *batcher[T]) takeBatchLocked() []T {
	n, bytes := 0, 0
	for n < len(b.waiting) && n < maxBatch {
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
	select {
	case <-b.full: // the signal concerned these items
	default:
	}
	if rest >= maxBatch || rest > 0 && n < maxBatch { // enough for another request, by number or by size
		b.signalFull()
	}
	return items
}

package engine

import "sync"

// Workers is a pool of goroutines. It grows to as many as there were items of work at once. A new goroutine for each
// item would have to grow its stack. Waking an idle one for each item would cost more than a short handler. A Workers
// is safe for concurrent use; make it with [NewWorkers].
type Workers[E any] struct {
	do func(E)

	mu    sync.Mutex
	more  sync.Cond
	queue FIFO[E]
	idle  int
	// coming reports whether a worker was woken and has not reached the queue. There is at most one: when it has taken an
	// item, it wakes the next worker. Until then a worker that has finished its item may take the next one, so few workers
	// do many short items.
	coming bool
	closed bool
}

// NewWorkers returns workers that call do.
func NewWorkers[E any](do func(E)) *Workers[E] {
	w := &Workers[E]{do: do}
	w.more.L = &w.mu
	return w
}

// Submit makes a worker call do with e. It does not block.
func (w *Workers[E]) Submit(e E) {
	w.mu.Lock()
	w.queue.Push(e)
	w.wakeWorkerLocked()
	w.mu.Unlock()
}

// Close ends the workers when the queue is empty. It does not wait for them.
func (w *Workers[E]) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.idle = 0 // all are woken
	w.more.Broadcast()
}

// wakeWorkerLocked wakes a worker, or starts one, unless one is coming.
func (w *Workers[E]) wakeWorkerLocked() {
	switch {
	case w.coming:
		return
	case w.idle > 0:
		w.idle--
		w.more.Signal()
	default:
		go w.work()
	}
	w.coming = true
}

// work is one worker. At first it is the one that is coming.
func (w *Workers[E]) work() {
	for coming := true; ; coming = false {
		e, ok := w.next(coming)
		if !ok {
			return
		}
		w.do(e) // it may end the goroutine (runtime.Goexit): at this point no state depends on it
	}
}

// next waits for an item. ok is false after Close, when there are no more.
func (w *Workers[E]) next(coming bool) (e E, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.queue.Empty() {
		if coming {
			w.coming = false
		}
		if w.closed {
			return e, false
		}
		w.idle++
		w.more.Wait()
		coming = true
	}
	e = w.queue.Pop()
	if coming {
		w.coming = false
	}
	if !w.queue.Empty() {
		w.wakeWorkerLocked()
	}
	return e, true
}

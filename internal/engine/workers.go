package engine

import "sync"

// Workers run what they are given, each in one of a few goroutines that live on:
// a young goroutine has to grow its stack, and to wake a sleeping one for every
// message costs more than a short handler. There are as many as there is work at
// once, so whoever gives bounds them. Safe for concurrent use; make it with
// [NewWorkers].
type Workers[E any] struct {
	do func(E)

	mu    sync.Mutex
	more  sync.Cond
	queue FIFO[E]
	idle  int
	// coming says that a worker is on its way to the queue. While there is work
	// one is, and only one: it fetches the next when it has taken something. A
	// worker that finds work when it returns from some takes it before, so short
	// ones are done by few.
	coming bool
	closed bool
}

// NewWorkers makes workers that call do.
func NewWorkers[E any](do func(E)) *Workers[E] {
	w := &Workers[E]{do: do}
	w.more.L = &w.mu
	return w
}

// Give has a worker run e soon. It does not block.
func (w *Workers[E]) Give(e E) {
	w.mu.Lock()
	w.queue.Push(e)
	w.wakeWorkerLocked()
	w.mu.Unlock()
}

// Close lets the workers end that have nothing to do, and the others when they
// have done what there is. It does not wait for them.
func (w *Workers[E]) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.idle = 0 // they are all on their way
	w.more.Broadcast()
}

// wakeWorkerLocked gets a worker on its way. The caller holds mu.
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

// work is one worker. It begins as the one that is coming.
func (w *Workers[E]) work() {
	for coming := true; ; coming = false {
		e, ok := w.next(coming)
		if !ok {
			return
		}
		w.do(e) // which may end the goroutine (runtime.Goexit): nobody counts on it meanwhile
	}
}

// next waits for work. It is false when there will be none.
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

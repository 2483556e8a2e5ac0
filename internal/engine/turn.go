package engine

import (
	"context"
	"sync"
	"time"
)

// Turn lets one message at a time run while nothing else of a client does: a suspect, which may have crashed its process
// before. A process that dies meanwhile died of it. It is safe for concurrent use; make it with [NewTurn].
type Turn struct {
	taken chan struct{} // has one while a suspect runs, or is about to

	mu        sync.Mutex
	busy      int           // messages that run and are no suspects
	closed    bool          // nothing else may begin
	calm      chan struct{} // closed when busy is 0; nil where nobody waits for it
	listeners map[*func()]struct{}
}

// NewTurn makes the turn of a client.
func NewTurn() *Turn {
	return &Turn{taken: make(chan struct{}, 1), listeners: make(map[*func()]struct{})}
}

// Begin counts a message that is no suspect until Rest. It reports false, and counts nothing, while a suspect has the turn.
func (t *Turn) Begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.busy++
	return true
}

// Rest takes one Begin back.
func (t *Turn) Rest() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	if t.busy == 0 && t.calm != nil {
		close(t.calm)
		t.calm = nil
	}
}

// Closed reports whether a suspect runs or waits for its turn: what is read meanwhile would only lie here.
func (t *Turn) Closed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// While a suspect waits for what still runs, nothing begins. When something runs on (a handler without a timeout) the others
// go on for as long as they have waited, and then the suspect waits again, twice as long.
const (
	minQuiet = 30 * time.Second
	maxQuiet = 10 * time.Minute
)

// Take waits until nothing else runs and the gate of the suspect's subscription is open; then nothing begins until Give. It
// reports false when ctx ends before. While the gate is closed it leaves the turn to others: a suspect that lay ready behind a
// closed gate would count as a crash if its process died meanwhile.
func (t *Turn) Take(ctx context.Context, gate *Gate) bool {
	for ctx.Err() == nil && t.reserve(ctx, gate) {
		for quiet := minQuiet; !gate.Closed() && ctx.Err() == nil; quiet = min(2*quiet, maxQuiet) {
			becomes := t.becomesQuiet(ctx, quiet)
			if becomes && !gate.Closed() {
				return true
			}
			t.open()
			if !becomes {
				pause(ctx, quiet)
			}
		}
		<-t.taken
	}
	return false
}

// reserve waits for the gate, and then until no other suspect has the turn or waits for it. It reports false when ctx ends before.
func (t *Turn) reserve(ctx context.Context, gate *Gate) bool {
	select {
	case <-gate.Opened():
	case <-ctx.Done():
		return false
	}
	select {
	case t.taken <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// becomesQuiet has nothing begin, and waits until nothing runs. It reports false when that takes too long.
func (t *Turn) becomesQuiet(ctx context.Context, quiet time.Duration) bool {
	t.mu.Lock()
	t.closed = true
	t.notifyLocked()
	if t.busy == 0 {
		t.mu.Unlock()
		return true
	}
	calm := make(chan struct{})
	t.calm = calm
	t.mu.Unlock()
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	select {
	case <-calm:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calm = nil
	return false
}

// Give ends a turn that was taken.
func (t *Turn) Give() {
	t.open()
	<-t.taken
}

func (t *Turn) open() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = false
	t.notifyLocked()
}

func (t *Turn) notifyLocked() {
	for ring := range t.listeners {
		(*ring)()
	}
}

// notify calls ring, which must not block, whenever a turn begins or ends, until end is called.
func (t *Turn) notify(ring func()) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listeners[&ring] = struct{}{}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.listeners, &ring)
	}
}

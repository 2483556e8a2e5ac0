package engine

import (
	"context"
	"sync"
	"time"

	"github.com/redeliver/redeliver/internal/wait"
)

// Turn lets a suspect, which is a message that may have crashed its process, run while no other message of the client
// runs. If the process dies then, the suspect is the cause. It is safe for concurrent use; make it with [NewTurn].
type Turn struct {
	taken chan struct{} // full while a suspect has the turn

	mu      sync.Mutex
	busy    int           // running messages that are no suspects
	closed  bool          // only the suspect may begin
	calm    chan struct{} // closed when busy is 0; nil if nothing waits for that
	changes wakes         // of closed
}

// NewTurn returns the turn of a client.
func NewTurn() *Turn {
	return &Turn{taken: make(chan struct{}, 1)}
}

// Begin counts a running message that is no suspect, until End. It reports false, and counts nothing, while a suspect has the
// turn.
func (t *Turn) Begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.busy++
	return true
}

// End undoes one Begin: no handler of the message runs any more.
func (t *Turn) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	if t.busy == 0 && t.calm != nil {
		close(t.calm)
		t.calm = nil
	}
}

// Closed reports whether a suspect runs or waits for the others: no message should be read meanwhile.
func (t *Turn) Closed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// While a suspect waits for the running messages, nothing begins. If one does not end (a handler without a timeout),
// the others may begin again for as long as they have waited, and then the suspect waits again, twice as long.
const (
	minQuiet = 30 * time.Second
	maxQuiet = 10 * time.Minute
)

// Take waits until nothing else runs and the gate of the suspect's subscription is open. Then nothing else begins until
// Give. It returns false if ctx ends first. It does not keep the turn while the gate is closed: if the process died
// then, the waiting suspect would count as the cause.
func (t *Turn) Take(ctx context.Context, gate *Gate) bool {
	for ctx.Err() == nil && t.reserve(ctx, gate) {
		for quiet := minQuiet; !gate.Closed() && ctx.Err() == nil; quiet = min(2*quiet, maxQuiet) {
			becomes := t.becomesQuiet(ctx, quiet)
			if becomes && !gate.Closed() {
				return true
			}
			t.open()
			if !becomes {
				_ = wait.For(ctx, quiet)
			}
		}
		<-t.taken
	}
	return false
}

// reserve waits for the gate, and then for the turn. It returns false if ctx ends first.
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

// becomesQuiet closes the turn to other messages, and waits until none runs. It returns false after the time quiet, or
// when ctx ends.
func (t *Turn) becomesQuiet(ctx context.Context, quiet time.Duration) bool {
	t.mu.Lock()
	t.closed = true
	t.changes.wake()
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

// Give ends a turn that Take has returned.
func (t *Turn) Give() {
	t.open()
	<-t.taken
}

func (t *Turn) open() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = false
	t.changes.wake()
}

package engine

import (
	"context"
	"sync"
	"time"

	"github.com/redeliver/redeliver/internal/wait"
)

// Turn lets a suspect, which is a message that may have crashed its process, run while no other message of the client
// runs. If the process dies then, the suspect is the cause. A handler whose message has timed out counts as running until
// it returns. Turn is safe for concurrent use; make it with [NewTurn].
type Turn struct {
	taken chan struct{} // full while a suspect has the turn, or waits for the others to end

	mu       sync.Mutex
	busy     int           // running messages that are no suspects, and suspects whose handlers still run after their timeouts
	closed   bool          // only the suspect may begin
	idle     chan struct{} // closed when busy is 0; nil if no suspect waits for that
	onChange wakes         // called when closed changes
}

// NewTurn returns the turn of a client.
func NewTurn() *Turn {
	return &Turn{taken: make(chan struct{}, 1)}
}

// Begin counts a running message that is no suspect, until End. While Closed, it returns false and counts nothing.
func (t *Turn) Begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.busy++
	return true
}

// add counts a suspect whose time is over and whose handler still runs, until End.
func (t *Turn) add() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy++
}

// Idle reports whether nothing runs that the turn counts: while a suspect has the turn, that is an earlier suspect whose
// time is over.
func (t *Turn) Idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy == 0
}

// End undoes one Begin: no handler of the message runs any more.
func (t *Turn) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	if t.busy == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// Closed reports whether a suspect runs, or waits for the others to end: no message should be read meanwhile.
func (t *Turn) Closed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// While a suspect waits for the running messages to end, nothing else begins. If one of them does not end in time (its handler
// has no timeout, or does not return after it), other messages may begin again for as long as the suspect has waited. Then the
// suspect waits again, for twice as long.
const (
	minSuspectWait = 30 * time.Second
	maxSuspectWait = 10 * time.Minute
)

// Take waits until nothing else runs and the gate of the suspect's subscription is open. Then nothing else begins until
// Give. It returns false if ctx ends first. It never keeps the turn while the gate is closed: if the process died
// then, the suspect, which only waits, would count as the cause.
func (t *Turn) Take(ctx context.Context, gate *Gate) bool {
	for ctx.Err() == nil && t.reserve(ctx, gate) {
		for maxWait := minSuspectWait; !gate.Closed() && ctx.Err() == nil; maxWait = min(2*maxWait, maxSuspectWait) {
			idle := t.waitUntilIdle(ctx, maxWait)
			if idle && !gate.Closed() {
				return true
			}
			t.open()
			if !idle {
				_ = wait.For(ctx, maxWait)
			}
		}
		<-t.taken
	}
	return false
}

// reserve waits for the gate, and then until no other suspect has the turn. It returns false if ctx ends first.
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

// waitUntilIdle closes the turn to other messages, and waits until none runs. It returns false after maxWait, or when ctx ends.
func (t *Turn) waitUntilIdle(ctx context.Context, maxWait time.Duration) bool {
	t.mu.Lock()
	t.closed = true
	t.onChange.wake()
	if t.busy == 0 {
		t.mu.Unlock()
		return true
	}
	idle := make(chan struct{})
	t.idle = idle
	t.mu.Unlock()
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = nil
	return false
}

// Give ends the turn of a suspect, for which Take has returned true.
func (t *Turn) Give() {
	t.open()
	<-t.taken
}

// open lets other messages begin.
func (t *Turn) open() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = false
	t.onChange.wake()
}

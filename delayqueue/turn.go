package delayqueue

import (
	"context"
	"sync/atomic"
	"time"
)

// Turn lets one suspect at a time run while nothing else of a client does: a
// message that may have killed its process before, on a broker that tells how
// often it was delivered. Who comes back from there without an answer was alone
// when its process died. It is safe for concurrent use; make it with [NewTurn].
type Turn struct {
	taken chan struct{} // held while a suspect runs, or is about to
	calm  Gate          // closed: nothing else may begin
	busy  atomic.Int64  // messages in flight that are no suspects
}

// NewTurn makes the turn of a client.
func NewTurn() *Turn { return &Turn{taken: make(chan struct{}, 1)} }

// Begin counts a message that is no suspect until it rests. It is false, and
// counts nothing, when it has to wait: see Calm.
func (t *Turn) Begin() bool {
	t.busy.Add(1) // first, so that a suspect that looks now sees it
	if t.calm.Closed() {
		t.busy.Add(-1)
		return false
	}
	return true
}

// Rest takes one Begin back.
func (t *Turn) Rest() { t.busy.Add(-1) }

// Calm returns a channel that is closed once no suspect runs.
func (t *Turn) Calm() <-chan struct{} { return t.calm.Opened() }

// Take waits until nothing else runs and the gate of the suspect's subscription is
// open; then nothing begins until Give. A suspect that lay ready, unrun, behind a
// closed gate would count as a crash if its process died meanwhile. It is false
// when ctx has ended before.
func (t *Turn) Take(ctx context.Context, gate *Gate) bool {
	for t.take(ctx) {
		if !gate.Closed() {
			return true
		}
		t.Give() // the client's other subscriptions go on
		select {
		case <-gate.Opened():
		case <-ctx.Done():
			return false
		}
	}
	return false
}

func (t *Turn) take(ctx context.Context) bool {
	select {
	case t.taken <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	for most := quietFirst; ; most = min(2*most, quietMost) {
		t.calm.Close()
		if t.quiet(ctx, most) {
			return true
		}
		t.calm.Open()
		select {
		case <-time.After(most): // the others get as long as they gave
		case <-ctx.Done():
			<-t.taken
			return false
		}
	}
}

// quietFirst is how long nothing begins because a suspect waits for what still runs. When
// something runs on (a consumer that reads no more, a handler without a timeout) the
// others go on for as long, and then the suspect waits again, twice as long: handlers
// that take longer than that would always be there.
const (
	quietFirst = 30 * time.Second
	quietMost  = 10 * time.Minute
)

// quiet waits until nothing runs any more. It is false when that takes too long.
func (t *Turn) quiet(ctx context.Context, most time.Duration) bool {
	look := time.NewTicker(Glance / 10)
	defer look.Stop()
	patience := time.NewTimer(most)
	defer patience.Stop()
	for t.busy.Load() > 0 {
		select {
		case <-look.C:
		case <-patience.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Give ends a turn that was taken.
func (t *Turn) Give() {
	t.calm.Open()
	<-t.taken
}

package shopdemo

import (
	"maps"
	"slices"
	"sync"

	"github.com/redeliver/redeliver"
)

// outcomes records how the orders ended. It is a [redeliver.Sink].
type outcomes struct {
	mu      sync.Mutex
	open    map[string]bool // unfinished orders of this run
	charged map[int]int     // by attempt
	dead    map[string]int  // by reason
	none    chan struct{}   // created by the method all; closed when open is empty
}

func newOutcomes() *outcomes {
	return &outcomes{open: map[string]bool{}, charged: map[int]int{}, dead: map[string]int{}}
}

func (e *outcomes) expect(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open[id] = true
}

// all returns a channel that is closed when all expected orders have ended.
func (e *outcomes) all() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.none = make(chan struct{})
	e.closeIfDone()
	return e.none
}

func (e *outcomes) closeIfDone() {
	if e.none != nil && len(e.open) == 0 {
		close(e.none)
		e.none = nil
	}
}

// Event implements [redeliver.Sink].
func (e *outcomes) Event(event redeliver.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch event := event.(type) {
	case redeliver.Committed:
		e.charged[event.State.Attempt()]++
		delete(e.open, event.State.ID)
	case redeliver.DeadLettered:
		e.dead[string(event.State.Reason)]++
		delete(e.open, event.State.ID)
	}
	e.closeIfDone()
}

// summary prints the counts, and some of the messages in the DLQ.
func (r *run) summary(placed int, title string, letters []DeadLetter, interrupted bool) {
	r.outcomes.mu.Lock()
	defer r.outcomes.mu.Unlock()
	r.screen.Sayf("\nAfter %.1f s:", r.screen.Elapsed().Seconds())
	r.screen.Sayf("%5d  orders placed in this run", placed)
	for _, n := range slices.Sorted(maps.Keys(r.outcomes.charged)) {
		r.screen.Sayf("%5d  charged on attempt %d", r.outcomes.charged[n], n)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.outcomes.dead)) {
		r.screen.Sayf("%5d  in the DLQ, %s", r.outcomes.dead[reason], reason)
	}
	r.screen.Sayf("%5d  still waiting", len(r.outcomes.open))
	r.screen.Sayf("\n%s:", title)
	for _, l := range letters[max(0, len(letters)-MaxShown):] {
		r.screen.Sayf("       %-8s  %-10s after attempt %s: %s", l.ID, l.Reason, l.Attempt, l.Error)
	}
	switch {
	case interrupted && len(r.outcomes.open) > 0:
		r.screen.Sayf("\nInterrupted. Start it again: waiting messages come back.")
	case len(r.outcomes.open) == 0:
		r.screen.Sayf("\nEvery order was charged or is in the DLQ. The shop is examples/%s/main.go.", r.Program)
		r.screen.Sayf("Look at the queues: %s", r.Look)
	}
}

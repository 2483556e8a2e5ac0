package stage

import (
	"maps"
	"slices"
	"sync"

	"github.com/redeliver/redeliver"
)

// ends records how the orders ended. It is a [redeliver.Sink].
type ends struct {
	mu      sync.Mutex
	open    map[string]bool // unfinished orders of this run
	charged map[int]int     // by attempt
	dead    map[string]int  // by reason
	none    chan struct{}   // created by the method all; closed when open is empty
}

func newEnds() *ends {
	return &ends{open: map[string]bool{}, charged: map[int]int{}, dead: map[string]int{}}
}

func (e *ends) expect(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open[id] = true
}

// all returns a channel that is closed when all expected orders have ended.
func (e *ends) all() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.none = make(chan struct{})
	e.look()
	return e.none
}

func (e *ends) look() {
	if e.none != nil && len(e.open) == 0 {
		close(e.none)
		e.none = nil
	}
}

// Event implements [redeliver.Sink].
func (e *ends) Event(event redeliver.Event) {
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
	e.look()
}

// summary prints the counts, and some of the messages in the DLQ.
func (r *run) summary(placed int, title string, letters []Letter, interrupted bool) {
	r.ends.mu.Lock()
	defer r.ends.mu.Unlock()
	r.screen.Sayf("\nAfter %.1f s:", r.screen.Elapsed().Seconds())
	r.screen.Sayf("%5d  orders placed in this run", placed)
	for _, n := range slices.Sorted(maps.Keys(r.ends.charged)) {
		r.screen.Sayf("%5d  charged on attempt %d", r.ends.charged[n], n)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.ends.dead)) {
		r.screen.Sayf("%5d  in the DLQ, %s", r.ends.dead[reason], reason)
	}
	r.screen.Sayf("%5d  still waiting", len(r.ends.open))
	r.screen.Sayf("\n%s:", title)
	for _, l := range letters[max(0, len(letters)-MaxShown):] {
		r.screen.Sayf("       %-8s  %-10s after attempt %s: %s", l.ID, l.Reason, l.Attempt, l.Error)
	}
	switch {
	case interrupted && len(r.ends.open) > 0:
		r.screen.Sayf("\nInterrupted. Start it again: waiting messages come back.")
	case len(r.ends.open) == 0:
		r.screen.Sayf("\nEvery order was charged or is in the DLQ. The shop is examples/%s/main.go.", r.Program)
		r.screen.Sayf("Look at the queues: %s", r.Look)
	}
}

package main

import (
	"maps"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
)

// ends notes what became of the orders. It is a [redeliver.Sink].
type ends struct {
	mu      sync.Mutex
	open    map[string]bool // of this run
	charged map[int]int     // by attempt
	dead    map[string]int  // by reason
	none    chan struct{}   // closed when the last of open has ended; nil as long as nobody asks
}

func newEnds() *ends {
	return &ends{open: map[string]bool{}, charged: map[int]int{}, dead: map[string]int{}}
}

func (e *ends) expect(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open[id] = true
}

// all is closed when all that were expected have ended.
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

// most is how many dead letters the summary shows.
const most = 8

// summary counts, and shows what lies in the DLQ: any client can read it.
func (s *stage) summary(placed int, urls []string, interrupted bool) error {
	conn, err := amqp.Dial(urls[0])
	if err != nil {
		return err
	}
	defer conn.Close() // and nothing is acked: all that was looked at goes back
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	s.ends.mu.Lock()
	defer s.ends.mu.Unlock()
	s.screen.Sayf("\nAfter %.1f s:", s.screen.Elapsed().Seconds())
	s.screen.Sayf("%5d  orders placed in this run", placed)
	for _, n := range slices.Sorted(maps.Keys(s.ends.charged)) {
		s.screen.Sayf("%5d  charged on attempt %d", s.ends.charged[n], n)
	}
	for _, reason := range slices.Sorted(maps.Keys(s.ends.dead)) {
		s.screen.Sayf("%5d  in the DLQ, %s", s.ends.dead[reason], reason)
	}
	s.screen.Sayf("%5d  still waiting", len(s.ends.open))
	dlq := queue + ".dlq"
	var letters []amqp.Delivery
	for {
		d, ok, err := ch.Get(dlq, false)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		letters = append(letters, d)
	}
	s.screen.Sayf("\nThe end of %s, which holds %d messages:", dlq, len(letters))
	for _, d := range letters[max(0, len(letters)-most):] {
		h := d.Headers
		s.screen.Sayf("       %-8v  %-10v after attempt %v: %v", h[redeliver.HeaderID], h[redeliver.HeaderReason], h[redeliver.HeaderAttempt], h[redeliver.HeaderError])
	}
	switch {
	case interrupted && len(s.ends.open) > 0:
		s.screen.Sayf("\nInterrupted. Start it again: what waits comes back.")
	case len(s.ends.open) == 0:
		s.screen.Sayf("\nEvery order was charged or is in the DLQ. The shop is examples/rabbitmq/main.go.")
		s.screen.Sayf("Look at the queues: rabbitmqctl list_queues name messages")
	}
	return nil
}

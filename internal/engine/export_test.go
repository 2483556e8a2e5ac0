package engine

import (
	"github.com/redeliver/redeliver/observe"
)

// InUse returns the number of slots, probes and closes of the gate that were not released.
func (s *Subscription) InUse() (slots [2]int, inFlight, probes, closes int) {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	probes = s.slots.guard.Probes
	s.Gate.mu.Lock()
	defer s.Gate.mu.Unlock()
	return s.slots.used, s.slots.inFlight, probes, s.Gate.closeCount
}

// Busy returns the number of messages that the turn counts.
func (t *Turn) Busy() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy
}

// AddLoad makes Load include the load of a part of the subscription, until end is called.
func (s *Subscription) AddLoad(load func() observe.Load) (end func()) { return s.loads.add(load) }

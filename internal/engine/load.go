package engine

import (
	"sync"

	"github.com/redeliver/redeliver"
)

// loads are what a subscription has in hand, by the parts that read for it.
type loads struct {
	mu    sync.Mutex
	parts map[*func() redeliver.Load]struct{}
}

// Load is what the subscription has in hand now. Its parts are asked one after another,
// while they go on: the numbers are exact only where nothing moves.
func (s *Subscription) Load() redeliver.Load {
	s.loads.mu.Lock()
	defer s.loads.mu.Unlock()
	var all redeliver.Load
	for part := range s.loads.parts {
		l := (*part)()
		all.InFlight += l.InFlight
		all.Held += l.Held
	}
	return all
}

// Carry has what a part of the subscription has in hand, a partition or a queue, count in
// Load until end is called. load is called from any goroutine.
func (s *Subscription) Carry(load func() redeliver.Load) (end func()) {
	s.loads.mu.Lock()
	defer s.loads.mu.Unlock()
	if s.loads.parts == nil {
		s.loads.parts = make(map[*func() redeliver.Load]struct{})
	}
	s.loads.parts[&load] = struct{}{}
	return func() {
		s.loads.mu.Lock()
		defer s.loads.mu.Unlock()
		delete(s.loads.parts, &load)
	}
}

// Watched has a sink that watches subscriptions watch this one until end is called. An
// adapter calls it once, when it begins to read.
func (s *Subscription) Watched() (end func()) {
	// Sinks bear one that is nil, or watches nothing, or panics.
	if w, ok := redeliver.Sinks(s.Sink).(redeliver.Watching); ok {
		return w.Watch(s.Origin, s.Group, s.Load)
	}
	return func() {}
}

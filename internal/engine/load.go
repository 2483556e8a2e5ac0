package engine

import (
	"sync"

	"github.com/redeliver/redeliver"
)

// loads are the loads of the parts of a subscription: partitions or queues.
type loads struct {
	mu    sync.Mutex
	parts map[*func() redeliver.Load]struct{}
}

// Load returns the number of messages that the subscription has in hand. It asks the parts one after another while they go on, so
// the numbers are exact only where nothing moves.
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

// Carry adds the load of a part of the subscription to Load until end is called. Any goroutine calls load.
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

// Watched reports the subscription to a sink that is a redeliver.LoadSink, until end is called. An adapter calls it once, when it
// begins to read.
func (s *Subscription) Watched() (end func()) {
	// Sinks allows for a sink that is nil, watches nothing, or panics.
	if w, ok := redeliver.Sinks(s.Sink).(redeliver.LoadSink); ok {
		return w.Watch(s.Origin, s.Group, s.Load)
	}
	return func() {}
}

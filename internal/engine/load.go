package engine

import (
	"github.com/redeliver/redeliver/observe"
)

// Load returns how many messages the subscription has in this process. It adds the loads of its parts one after another while
// they run, so the sum is exact only while nothing changes.
func (s *Subscription) Load() (all observe.Load) {
	s.loads.mu.Lock()
	defer s.loads.mu.Unlock()
	for part := range s.loads.all {
		l := (*part)()
		all.InFlight += l.InFlight
		all.Held += l.Held
	}
	return all
}

// RegisterLoad registers the subscription with a sink that is a observe.LoadSink, until end is called. An adapter calls it
// once, when it begins to read.
func (s *Subscription) RegisterLoad() (end func()) {
	// Sinks handles a sink that is nil, watches nothing, or panics.
	if w, ok := observe.Sinks(s.Sink).(observe.LoadSink); ok {
		return w.Watch(s.Origin, s.Group, s.Load)
	}
	return func() {}
}

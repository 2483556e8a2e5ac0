package observed

import (
	"sync"

	"github.com/redeliver/redeliver/observe"
)

// Place is a subscription's origin and group.
type Place struct{ Origin, Group string }

// Loads is the set of watched subscriptions. The zero value is empty. It is safe for concurrent use.
type Loads struct {
	mu sync.Mutex
	of map[*watched]struct{}
}

type watched struct {
	at   Place
	load func() observe.Load
}

// Watch adds a subscription, as [observe.LoadSink] requires.
func (l *Loads) Watch(origin, group string, load func() observe.Load) (end func()) {
	w := &watched{Place{origin, group}, load}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = make(map[*watched]struct{})
	}
	l.of[w] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.of, w)
	}
}

// Now returns the present load. Subscriptions of one origin and group are added up.
func (l *Loads) Now() map[Place]observe.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[Place]observe.Load)
	for w := range l.of {
		sum, one := all[w.at], w.load()
		sum.InFlight += one.InFlight
		sum.Held += one.Held
		all[w.at] = sum
	}
	return all
}

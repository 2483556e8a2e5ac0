package engine

import (
	"sync"

	"github.com/redeliver/redeliver"
)

// States is what this process knows of messages that have failed and were not
// written anew: they wait in hand, or keep their place in their queue, and their
// headers cannot tell. It is in memory, for what comes back to this process. Safe
// for concurrent use.
type States[K comparable] struct {
	// MaxMessages is how many messages are known; above that all are forgotten, and begin
	// anew. There are hardly more than in hand.
	MaxMessages int

	mu     sync.Mutex
	states map[K]*redeliver.State
}

// Put notes the state of a message.
func (s *States[K]) Put(message K, st *redeliver.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states == nil || len(s.states) >= s.MaxMessages {
		s.states = make(map[K]*redeliver.State)
	}
	s.states[message] = st
}

// Take returns what is known of a message that came back, or nil, and forgets it:
// another one may have the same id.
func (s *States[K]) Take(message K) *redeliver.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.states[message]
	delete(s.states, message)
	return st
}

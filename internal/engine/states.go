package engine

import (
	"sync"

	"github.com/redeliver/redeliver"
)

// States keeps in memory the states of failed messages that were not written with new headers, because they wait in this process
// or keep their place in their queue. It is safe for concurrent use.
type States[K comparable] struct {
	// MaxMessages bounds the states. When there would be more, all are forgotten, and the messages begin again with attempt 1.
	MaxMessages int

	mu     sync.Mutex
	states map[K]*redeliver.State
}

// Put stores the state of a message.
func (s *States[K]) Put(message K, st *redeliver.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states == nil || len(s.states) >= s.MaxMessages {
		s.states = make(map[K]*redeliver.State)
	}
	s.states[message] = st
}

// Take returns the state of a message that came back, or nil. It removes the state, because another message may have the same id.
func (s *States[K]) Take(message K) *redeliver.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.states[message]
	delete(s.states, message)
	return st
}

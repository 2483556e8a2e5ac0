package amqp

import amqp "github.com/rabbitmq/amqp091-go"

// slab is room for the entries of deliveries that a lane reads one after another,
// so that a message that succeeds costs no allocation of ours. It lives as long
// as one of them: a message that stays long keeps those read beside it in memory.
// So a slab ends early when their bodies are many, and a lane that reads little
// makes small ones. What a slab keeps is then at most slabMost messages and
// slabBytes, and the last message.
type slab struct {
	entries []entry
	places  []BatchMessage // for their deliveries, where these are handled in batches
	bytes   int            // of bodies in it
	size    int
}

const (
	slabMost  = 64
	slabBytes = 64 << 10
)

// entry makes the entry of a delivery.
func (s *slab) entry(d *amqp.Delivery) *entry {
	if len(s.entries) == 0 || s.bytes > slabBytes {
		s.size, s.bytes = min(max(1, 2*s.size), slabMost), 0
		s.entries, s.places = make([]entry, s.size), nil
	}
	e := &s.entries[0]
	s.entries = s.entries[1:]
	s.bytes += len(d.Body)
	return e
}

// place makes the place of a delivery in its batches.
func (s *slab) place() *BatchMessage {
	if len(s.places) == 0 {
		s.places = make([]BatchMessage, s.size)
	}
	m := &s.places[0]
	s.places = s.places[1:]
	return m
}

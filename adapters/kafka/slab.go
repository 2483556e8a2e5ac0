package kafka

import (
	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/delayqueue"
)

// slab is room for the entries of records that a lane reads one after another,
// so that a message that succeeds costs no allocation of ours. It lives as long
// as one of them: a record that stays long keeps those read beside it in memory.
// So a slab ends early when their bytes are many, and a lane that reads little
// makes small ones. What a slab keeps is then at most slabMost records and
// slabBytes, the last record, and what shares the fetches that these came with.
type slab struct {
	entries  []entry
	attempts []delayqueue.Attempt // nil where middleware.Retry makes them, or places have them
	places   []BatchMessage       // for their records, where these are handled in batches
	cards    []card               // nil where a key does not wait for its failures
	bytes    int                  // of records in it
	size     int
}

const (
	slabMost  = 64
	slabBytes = 64 << 10
)

// entry makes the entry of a record.
func (s *slab) entry(l *lane, m *sarama.ConsumerMessage) *entry {
	if len(s.entries) == 0 || s.bytes > slabBytes {
		s.size, s.bytes = min(max(1, 2*s.size), slabMost), 0
		s.entries = make([]entry, s.size)
		switch n := l.r.native; {
		case n == nil:
		case n.batches != nil:
			s.places = nil
		default:
			s.attempts = make([]delayqueue.Attempt, s.size)
		}
		if l.lines != nil {
			s.cards = make([]card, s.size)
		}
	}
	e := &s.entries[0]
	s.entries = s.entries[1:]
	if s.attempts != nil {
		e.attempt = &s.attempts[0]
		s.attempts = s.attempts[1:]
	}
	if s.cards != nil {
		e.room = &s.cards[0]
		s.cards = s.cards[1:]
	}
	s.bytes += len(m.Key) + len(m.Value)
	e.lane, e.rec.ConsumerMessage, e.rec.marshaler, e.rec.entry = l, m, l.r.client.cfg.Marshaler, e
	return e
}

// place makes the place of a record in its batches.
func (s *slab) place() *BatchMessage {
	if len(s.places) == 0 {
		s.places = make([]BatchMessage, s.size)
	}
	m := &s.places[0]
	s.places = s.places[1:]
	return m
}

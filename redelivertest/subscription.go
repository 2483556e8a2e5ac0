package redelivertest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// Place is a destination of a group's failed messages.
type Place string

// The places.
const (
	PlaceLevels Place = "where messages wait" // levels and the retry topic
	PlaceDLQ    Place = "the DLQ"
)

// Subscription is one topic as one group reads it: its events, waiting messages and dead letters.
// It is safe for concurrent use, and outlives the clients of the group.
type Subscription struct{ q *queue }

// Subscription returns a topic as the client's group reads it.
func (c *Client) Subscription(topic string) *Subscription {
	c.service.b.mu.Lock()
	defer c.service.b.mu.Unlock()
	return &Subscription{c.service.b.queueLocked(topic, c.service.cfg.Group)}
}

// Stored is a message on a delay topic or in the DLQ.
type Stored struct {
	// Where is the name of its topic.
	Where string
	// State is the state in its headers: when it is due, or why it is in the DLQ.
	State redeliver.State
	// Message is the message as it was published: UUID, metadata and payload.
	Message *message.Message
	// Key is its key, empty for none.
	Key string
}

// String returns one line: the id, the topic, and the reason.
func (s Stored) String() string {
	line := fmt.Sprintf("%s on %s, attempts: %d", s.State.ID, s.Where, s.State.Attempts)
	if s.State.Reason != "" {
		line += ", " + string(s.State.Reason)
	}
	if !s.State.Due.IsZero() {
		line += ", due " + s.State.Due.Format(time.RFC3339)
	}
	if s.State.Error != "" {
		line += ": " + s.State.Error
	}
	return line
}

func (q *queue) stored(where string, rec record) Stored {
	users, ours := rec.split()
	st, _ := driver.ParseHeaders(q.group, ours)
	return Stored{Where: where, State: st, Message: users.unmarshal(), Key: string(users.key)}
}

// DeadLetters waits until everything is at rest (see [Broker.Wait]), and returns the messages in
// the DLQ, in the order in which they were written.
func (s *Subscription) DeadLetters() []Stored {
	s.q.b.tb.Helper()
	s.q.b.Wait()
	s.q.b.mu.Lock()
	defer s.q.b.mu.Unlock()
	var all []Stored
	for _, rec := range s.q.dead {
		all = append(all, s.q.stored(s.q.dlq(), rec.record))
	}
	return all
}

// Waiting returns the messages that wait now, the next due first. In a bubble it first waits until all other goroutines
// are blocked, without advancing the time.
func (s *Subscription) Waiting() []Stored {
	if s.q.b.bubble {
		waitIdle()
	}
	s.q.b.mu.Lock()
	defer s.q.b.mu.Unlock()
	var all []Stored
	for _, it := range s.q.items {
		if it.waits && !it.handlerRuns {
			all = append(all, s.q.stored(it.where, it.record))
		}
	}
	slices.SortStableFunc(all, func(x, y Stored) int { return x.State.Due.Compare(y.State.Due) })
	return all
}

// RefuseWrites makes the broker refuse writes to a place of the group until restore is called. Messages
// that must go there are written only after that.
func (s *Subscription) RefuseWrites(what Place) (restore func()) {
	b := s.q.b
	count := func(n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		s.q.refused[what] += n
	}
	count(1)
	return sync.OnceFunc(func() { count(-1) })
}

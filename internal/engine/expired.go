package engine

import (
	"time"

	"github.com/redeliver/redeliver"
)

// checkExpired returns why a message is too old to run: a redeliver.ExpiredError, or nil. state is its state in this
// process, or nil while its record has it.
func (s *Subscription) checkExpired(state *redeliver.State, c anyEntry) error {
	if state == nil {
		carried, created, expires := c.age()
		if carried == nil {
			return s.checkFirst(created, expires)
		}
		state = carried
	}
	if s.Policy.MaxAge <= 0 && state.Expires.IsZero() {
		return nil
	}
	return s.Policy.CheckExpired(state, time.Now())
}

// checkFirst is checkExpired for a first delivery. It is separate for the reason of Delivery.askInvalid.
func (s *Subscription) checkFirst(created, expires time.Time) error {
	if s.Policy.MaxAge <= 0 && expires.IsZero() {
		return nil
	}
	return s.Policy.CheckExpired(&redeliver.State{Expires: expires, Source: redeliver.Source{Timestamp: created}}, time.Now())
}

package engine

import (
	"time"

	"github.com/redeliver/redeliver"
)

// checkExpired returns why a message is too old to run: a redeliver.ExpiredError, or nil. state is its state in this
// process, or nil while its record has it.
func (s *Subscription) checkExpired(state *redeliver.State, c carrier) error {
	var first redeliver.State
	if state == nil {
		state, first.Source.Timestamp, first.Expires = c.age()
	}
	if state != nil {
		rule := s.ruleOf(state.Schedule)
		if rule.MaxAge <= 0 && state.Expires.IsZero() {
			return nil
		}
		return rule.CheckExpired(state, time.Now())
	}
	if s.Policy.MaxAge <= 0 && first.Expires.IsZero() {
		return nil
	}
	return s.Policy.CheckExpired(&first, time.Now())
}

package engine

import (
	"fmt"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// Notes returns the notes about a policy for the plans of all adapters: its rule does not travel with waiting messages, or
// some waits are shortened.
func Notes(p redeliver.Policy) (notes []string) {
	if p.Schedule() == "" {
		notes = append(notes, "the rule does not fit into a header (redeliver.Policy.Schedule): messages that wait when the policy changes continue under the new one")
	}
	if p.Order == redeliver.Blocking {
		notes = append(notes, fmt.Sprintf("in Blocking order a wait that a handler or Classify asks for is limited to %s to %s, and the error of the message says so",
			limits.MinBlock, limits.MaxBlock))
	}
	return notes
}

// rule returns the policy that decides about a message: the subscription's, with the schedule that the message came
// with. If the policy's own schedule decides, rule stores it in st, which travels with the message.
func (s *Subscription) rule(st *redeliver.State) *redeliver.Policy {
	rule := s.ruleOf(st.Schedule)
	if rule == &s.Policy {
		st.Schedule = s.schedule
	}
	return rule
}

// ruleOf returns the rule for a message that came with this schedule; empty means none.
func (s *Subscription) ruleOf(schedule string) *redeliver.Policy {
	if schedule != "" && schedule != s.schedule && !s.Policy.Supersede {
		return s.olderRule(schedule)
	}
	return &s.Policy
}

// olderRule is ruleOf for the schedule of another policy. It is separate for the reason of Delivery.askInvalid.
func (s *Subscription) olderRule(schedule string) *redeliver.Policy {
	if old, ok := s.Policy.WithSchedule(schedule); ok && s.accepts(&old) {
		return &old
	}
	return &s.Policy
}

// accepts reports whether the rule that a message came with may decide about it. With untrusted producers the rule must
// give the message no more retries and no more time than the policy does.
func (s *Subscription) accepts(old *redeliver.Policy) bool {
	if !s.UntrustedProducers {
		return true
	}
	return old.MaxRetries <= s.Policy.MaxRetries && (s.Policy.MaxAge == 0 || old.MaxAge != 0 && old.MaxAge <= s.Policy.MaxAge)
}

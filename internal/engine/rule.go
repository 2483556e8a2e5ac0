package engine

import (
	"fmt"

	"github.com/redeliver/redeliver"
)

// Schedule is [redeliver.Policy.Schedule] of the policy, reckoned once.
func (s *Subscription) Schedule() string {
	if p := s.schedule.Load(); p != nil {
		return *p
	}
	rule := s.Policy.Schedule()
	s.schedule.Store(&rule)
	return rule
}

// Notes are what a plan says of a policy on every broker: that its rule does not travel with the messages that wait, and that
// some waits are cut.
func Notes(p redeliver.Policy) (notes []string) {
	if p.Schedule() == "" {
		notes = append(notes, "the rule does not fit into a header (redeliver.Policy.Schedule): what waits when the policy changes goes on by the new one")
	}
	if p.Order == redeliver.Blocking {
		notes = append(notes, fmt.Sprintf("in Blocking order a wait that a handler or Classify asks for is cut to %s to %s where it is another, and the error of the message says so",
			redeliver.MinBlock, redeliver.MaxBlock))
	}
	return notes
}

// rule is what decides about a message: the rule that it brought, where that is
// another than the policy's, else the policy. st says afterwards which one, and so do
// the headers with which the message goes on. Either way what the rule does not say is
// the policy's: its Timeout, its functions, its order, its levels.
func (s *Subscription) rule(st *redeliver.State) *redeliver.Policy {
	rule := s.ruleOf(st.Schedule)
	if rule == &s.Policy {
		st.Schedule = s.Schedule()
	}
	return rule
}

// ruleOf is rule for a message that brought this schedule, empty for none.
func (s *Subscription) ruleOf(schedule string) *redeliver.Policy {
	if schedule != "" && schedule != s.Schedule() && !s.Policy.Supersede {
		if old, ok := s.Policy.Under(schedule); ok && s.takes(&old) {
			return &old
		}
	}
	return &s.Policy
}

// takes reports whether a rule that a message brought may decide about it. Where strangers write, it gives the message no
// more retries and no more time than the policy does.
func (s *Subscription) takes(old *redeliver.Policy) bool {
	if !s.UntrustedProducers {
		return true
	}
	return old.MaxRetries <= s.Policy.MaxRetries && (s.Policy.MaxAge == 0 || old.MaxAge != 0 && old.MaxAge <= s.Policy.MaxAge)
}

package delayqueue

import "github.com/redeliver/redeliver"

// What is now and was not before (a closed gate, one stuck handler more) is told in the
// order in which it came to be: who keeps the last that was said, a gauge for instance,
// would else keep for ever what an older event said after a newer one. So the change and
// its telling are one step; a sink is quick, or it would hold up messages anyway.

// pause closes the gate for a message that where does not take, and tells of it.
func (s *Subscription) pause(where string, err error) {
	s.telling.Lock()
	defer s.telling.Unlock()
	if s.Gate.Close() {
		s.Tell(redeliver.SubscriptionChanged{Origin: s.Origin, Group: s.Group, Change: redeliver.ChangeIntakePaused, Detail: "writing to " + where, Err: err})
	}
}

// resume takes one pause back, and tells when it was the last.
func (s *Subscription) resume() {
	s.telling.Lock()
	defer s.telling.Unlock()
	if s.Gate.Open() {
		s.Tell(redeliver.SubscriptionChanged{Origin: s.Origin, Group: s.Group, Change: redeliver.ChangeIntakeResumed})
	}
}

// tellStuck counts by more handlers as stuck, and tells what event makes of their number.
func (s *Subscription) tellStuck(by int64, event func(stuck int64) redeliver.Event) {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.Tell(event(s.Stuck.Add(by)))
}

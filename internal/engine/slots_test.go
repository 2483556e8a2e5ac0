package engine

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// The pause of an outage is over, and all slots of a class are in use by handlers that hang. Only one that is given back makes
// room for those that wait: a timer would fire again and again.
func TestNoTimerLooksForASlotThatOnlyAHandlerGives(t *testing.T) {
	sub := &Subscription{MaxInFlight: 1, MaxRetriesInFlight: 1, Policy: redeliver.Policy{
		Outage: redeliver.Outage{MinKeys: 2, Share: 0.5, Window: time.Minute, Probe: time.Millisecond, MaxPause: time.Hour, Probes: 1},
	}.WithDefaults()}
	sub.Start()
	s := &sub.slots
	hangs, waits := &slotWaiter{ring: func() {}}, &slotWaiter{ring: func() {}}
	if ok, _ := s.take(firstDelivery, hangs); !ok {
		t.Fatal("no slot")
	}
	if ok, _ := s.take(firstDelivery, waits); ok {
		t.Fatal("a slot too many")
	}
	s.mu.Lock()
	s.guard.outage.trip(s.nowLocked())
	s.guard.outage.until = 1 // its pause is over
	s.mu.Unlock()
	s.wake()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed != 0 {
		t.Error("a timer is set although no time makes room")
		s.alarm.Stop()
	}
}

// Slots that have shrunk to one are for both classes in turn, also where one of their lanes is always quicker than the other.
func TestAQuickLaneDoesNotStarveTheOtherClass(t *testing.T) {
	sub := &Subscription{MaxInFlight: 10, MaxRetriesInFlight: 10, MinInFlight: 1}
	sub.Start()
	s := &sub.slots
	s.limit = 1
	quick, slow := &slotWaiter{ring: func() {}}, &slotWaiter{ring: func() {}}
	got := [2]int{}
	for range 20 {
		for class, w := range []*slotWaiter{quick, slow} {
			if ok, probe := s.take(class, w); ok {
				got[class]++
				s.take(firstDelivery, quick) // both have more
				s.take(retry, slow)
				s.give(class, probe, silent)
				break
			}
		}
	}
	if got[firstDelivery] < 8 || got[retry] < 8 {
		t.Errorf("%d first deliveries and %d retries began, want ten of each", got[firstDelivery], got[retry])
	}
}

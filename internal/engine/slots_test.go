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
	s.guard.outage.trip(s.guard.now())
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

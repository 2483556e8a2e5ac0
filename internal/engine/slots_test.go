package engine

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine/guard"
)

// When the pause of an outage is over and handlers that hang have all slots of a class, no timer is set: it would fire again and
// again.
func TestNoTimerRunsForASlotThatOnlyAHandlerReleases(t *testing.T) {
	sub := &Subscription{MaxInFlight: 1, MaxRetriesInFlight: 1, Policy: redeliver.Policy{
		Outage: redeliver.Outage{MinKeys: 2, Share: 0.5, Window: time.Minute, Probe: 1, MaxPause: time.Hour, Probes: 1},
	}.WithDefaults()}
	sub.Start()
	s := &sub.slots
	hangs, waits := &slotWaiter{wake: func() {}}, &slotWaiter{wake: func() {}}
	if ok, _ := s.acquire(firstDelivery, hangs); !ok {
		t.Fatal("no slot")
	}
	if ok, _ := s.acquire(firstDelivery, waits); ok {
		t.Fatal("take gave more slots than the limit")
	}
	for key := range uint64(2) { // an outage, whose pause is over
		s.countFailure(&guard.Failure{Key: key}, 0)
	}
	s.onAlarm()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarmAt != 0 {
		t.Error("a timer is set although only a handler can make room")
		s.alarm.Stop()
	}
}

// Both classes get the last slot in turn, although the lane of one class is always quicker.
func TestAQuickLaneDoesNotStarveTheOtherClass(t *testing.T) {
	sub := &Subscription{MaxInFlight: 10, MaxRetriesInFlight: 10, MinInFlight: 1}
	sub.Start()
	s := &sub.slots
	s.limit = 1
	quick, slow := &slotWaiter{wake: func() {}}, &slotWaiter{wake: func() {}}
	got := [2]int{}
	for range 20 {
		for class, w := range []*slotWaiter{quick, slow} {
			if ok, probe := s.acquire(class, w); ok {
				got[class]++
				s.acquire(firstDelivery, quick) // both lanes have more
				s.acquire(retry, slow)
				s.release(class, probe, signalNone, 0)
				break
			}
		}
	}
	if got[firstDelivery] < 8 || got[retry] < 8 {
		t.Errorf("%d first deliveries and %d retries began, want ten of each", got[firstDelivery], got[retry])
	}
}

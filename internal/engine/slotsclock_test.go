package engine

import (
	"runtime"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// maxStall is how long nothing may begin before a test fails: far longer than a busy machine needs.
const maxStall = 30 * time.Second

// awaitRing waits until a lane is rung, and fails where nobody rings it any more.
func awaitRing(t *testing.T, rung <-chan struct{}, begun int) {
	t.Helper()
	select {
	case <-rung:
	case <-time.After(maxStall):
		t.Fatalf("no attempt began for %s after %d", maxStall, begun)
	}
}

// Whatever time a step reads, a lane that it leaves waiting has an alarm that is still to come.
func TestNoWaitIsWithoutAnAlarm(t *testing.T) {
	t.Parallel()
	out := redeliver.Outage{MinKeys: 2, Share: 0.75, Window: 10 * time.Second, Probe: time.Hour, MaxPause: time.Hour, Probes: 2}
	for name, policy := range map[string]redeliver.Policy{
		"outage": {Outage: out},
		"flood":  {DeadLetterRate: redeliver.DeadLetterRate{Most: 1, Window: time.Hour, Pause: time.Hour, Trickle: 1}},
		"rate":   {Rate: redeliver.Rate{PerSecond: 1.0 / 3600, Burst: 1}},
		"both":   {Outage: out, Rate: redeliver.Rate{PerSecond: 1.0 / 1800, Burst: 1}},
	} {
		sub := &Subscription{Policy: policy}
		sub.Start()
		s := &sub.slots
		w := &slotWaiter{ring: func() {}}
		if ok, _ := s.take(firstDelivery, w); !ok {
			t.Fatalf("%s: no slot for the first", name)
		}
		switch {
		case s.guard == nil:
		case s.guard.outage != nil:
			s.guard.outage.trip(0)
		default:
			s.guard.flood.trip(0)
		}
		s.take(firstDelivery, w)
		for _, before := range []time.Duration{time.Minute, time.Second, time.Microsecond, 1} { // the pause ends
			now := time.Hour - before
			s.mu.Lock()
			s.armed = 0
			s.wakeLocked(now)
			if w.turn || s.armed <= now {
				t.Errorf("%s: %s before the end the lane has a turn: %t, and the alarm is set for %s", name, before, w.turn, s.armed)
			}
			s.mu.Unlock()
		}
		s.mu.Lock()
		s.wakeLocked(time.Hour + time.Second) // the rate began a moment after the slots
		if !w.turn {
			t.Errorf("%s: at its end the lane is not rung", name)
		}
		s.alarm.Stop()
		s.mu.Unlock()
	}
}

// Probes follow one another for as long as an outage lasts, also where the pause ends while the slots are looked at. That takes
// a clock that runs, so the test is one of many short pauses.
func TestAProbeFollowsEveryPause(t *testing.T) {
	t.Parallel()
	const probes, pause = 1500, 50 * time.Microsecond
	sub := &Subscription{Policy: redeliver.Policy{Outage: redeliver.Outage{
		MinKeys: 2, Share: 0.75, Window: 10 * time.Second, Probe: pause, MaxPause: pause, Probes: 2,
	}}}
	sub.Start()
	rung := make(chan struct{}, 1)
	w := &slotWaiter{ring: func() { rung <- struct{}{} }}
	fails := func(key uint64, probe bool) {
		sub.slots.judge(&failure{print: 1, key: key, id: key, probe: probe, ill: true, sparable: true})
	}
	fails(1, false)
	fails(2, false)
	for n := range probes {
		ok, probe := sub.slots.take(firstDelivery, w)
		for !ok {
			awaitRing(t, rung, n)
			ok, probe = sub.slots.take(firstDelivery, w)
		}
		if !probe {
			t.Fatalf("attempt %d is no probe", n)
		}
		for handled := time.Now(); time.Since(handled) < time.Duration(n%1000)*time.Microsecond; { // a timer is late by as much
			runtime.KeepAlive(w)
		}
		fails(uint64(n%2)+1, true)
		sub.slots.give(firstDelivery, true, ill)
	}
}

// A lane that waits for the rate is rung, also where its time comes while the slots are looked at.
func TestEveryWaitForTheRateEnds(t *testing.T) {
	t.Parallel()
	const attempts = 3000
	sub := &Subscription{Policy: redeliver.Policy{Rate: redeliver.Rate{PerSecond: 20_000, Burst: 1}}}
	sub.Start()
	rung := make(chan struct{}, 1)
	w := &slotWaiter{ring: func() { rung <- struct{}{} }}
	for n := range attempts {
		for {
			if ok, _ := sub.slots.take(firstDelivery, w); ok {
				break
			}
			awaitRing(t, rung, n)
		}
		sub.slots.give(firstDelivery, false, well)
	}
}

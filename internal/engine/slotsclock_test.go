package engine

import (
	"runtime"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine/guard"
)

// maxStall is how long nothing may begin before a test fails: far longer than a busy machine needs.
const maxStall = 30 * time.Second

// awaitWake waits until a lane is woken, and fails after maxStall.
func awaitWake(t *testing.T, woken <-chan struct{}, begun int) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(maxStall):
		t.Fatalf("no attempt began for %s after %d", maxStall, begun)
	}
}

// A lane that waits after a step has an alarm in the future, for every time that the step may read.
func TestEveryWaitHasAnAlarm(t *testing.T) {
	t.Parallel()
	out := redeliver.Outage{MinKeys: 2, Share: 0.75, Window: 10 * time.Second, Probe: time.Hour, MaxPause: time.Hour, Probes: 2}
	for name, policy := range map[string]redeliver.Policy{
		"outage": {Outage: out},
		"flood":  {Outage: redeliver.Outage{Off: true}, DeadLetterRate: redeliver.DeadLetterRate{Max: 1, Window: time.Hour, Pause: time.Hour, Probes: 1}},
		"rate":   {Outage: redeliver.Outage{Off: true}, Rate: redeliver.Rate{PerSecond: 1.0 / 3600, Burst: 1}},
		"pause":  {Outage: redeliver.Outage{Off: true}},
		"both":   {Outage: out, Rate: redeliver.Rate{PerSecond: 1.0 / 1800, Burst: 1}},
	} {
		sub := &Subscription{Policy: policy}
		sub.Start()
		s := &sub.slots
		w := &slotWaiter{wake: func() {}}
		if ok, _ := s.acquire(firstDelivery, w); !ok {
			t.Fatalf("%s: the first message got no slot", name)
		}
		switch {
		case name == "pause":
			s.guard.Pause(time.Hour, nil, 0)
		case !policy.Outage.Off:
			for key := range uint64(2) {
				s.guard.CountFailure(&guard.Failure{Key: key}, 0)
			}
		case policy.DeadLetterRate != (redeliver.DeadLetterRate{}):
			for range 2 {
				s.guard.DeadLettered(false, 0)
			}
		}
		s.acquire(firstDelivery, w)
		for _, before := range []time.Duration{time.Minute, time.Second, time.Microsecond, 1} { // the pause ends
			now := time.Hour - before
			s.mu.Lock()
			s.alarmAt = 0
			s.wakeLocked(now)
			if w.mayTake || s.alarmAt <= now {
				t.Errorf("%s: %s before the end the lane may take a slot: %t, and the alarm is set for %s", name, before, w.mayTake, s.alarmAt)
			}
			s.mu.Unlock()
		}
		s.mu.Lock()
		s.wakeLocked(time.Hour + time.Second) // the rate began a moment after the slots
		if !w.mayTake {
			t.Errorf("%s: at its end the lane is not woken", name)
		}
		s.alarm.Stop()
		s.mu.Unlock()
	}
}

// A probe follows every pause of an outage, even if the pause ends during a step. That needs a real clock, so the test
// has many short pauses.
func TestAProbeFollowsEveryPause(t *testing.T) {
	t.Parallel()
	const probes, pause = 1500, 50 * time.Microsecond
	sub := &Subscription{Policy: redeliver.Policy{Outage: redeliver.Outage{
		MinKeys: 2, Share: 0.75, Window: 10 * time.Second, Probe: pause, MaxPause: pause, Probes: 2,
	}}}
	sub.Start()
	woken := make(chan struct{}, 1)
	w := &slotWaiter{wake: func() { woken <- struct{}{} }}
	fails := func(key uint64, probe bool) {
		sub.slots.countFailure(&guard.Failure{Cause: 1, Key: key, ID: key, Probe: probe, Postponable: true}, 0)
	}
	fails(1, false)
	fails(2, false)
	for n := range probes {
		ok, probe := sub.slots.acquire(firstDelivery, w)
		for !ok {
			awaitWake(t, woken, n)
			ok, probe = sub.slots.acquire(firstDelivery, w)
		}
		if !probe {
			t.Fatalf("attempt %d is not a probe", n)
		}
		for handled := time.Now(); time.Since(handled) < time.Duration(n%1000)*time.Microsecond; { // a timer may be late by as much
			runtime.KeepAlive(w)
		}
		fails(uint64(n%2)+1, true)
		sub.slots.release(firstDelivery, true, signalFailure, 0)
	}
}

// A lane that waits for the rate is woken, even if its time comes during a step.
func TestEveryWaitForTheRateEnds(t *testing.T) {
	t.Parallel()
	const attempts = 3000
	sub := &Subscription{Policy: redeliver.Policy{Rate: redeliver.Rate{PerSecond: 20_000, Burst: 1}}}
	sub.Start()
	woken := make(chan struct{}, 1)
	w := &slotWaiter{wake: func() { woken <- struct{}{} }}
	for n := range attempts {
		for {
			if ok, _ := sub.slots.acquire(firstDelivery, w); ok {
				break
			}
			awaitWake(t, woken, n)
		}
		sub.slots.release(firstDelivery, false, signalSuccess, 0)
	}
}

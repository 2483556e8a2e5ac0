package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine/guard"
)

// A window in which half of the messages failed shrinks the limit, and one in which nine of ten succeeded makes it grow. Few failures
// change nothing.
func TestAWindowShrinksOrGrowsTheLimit(t *testing.T) {
	type window struct {
		minLimit, limit, good, bad, peak, want int
	}
	for name, w := range map[string]window{
		"half failed":                {1, 0, 10, 10, 8, 4},
		"fewer than half":            {1, 0, 11, 10, 8, 0},
		"few failed":                 {1, 0, 0, 9, 8, 0},
		"more in use than the limit": {1, 0, 0, 10, 100, 8},
		"shrunk, and one failed":     {1, 8, 1, 1, 8, 4},
		"shrunk, and none ended":     {1, 8, 0, 0, 8, 8},
		"not below the minimum":      {3, 4, 0, 10, 4, 3},
		"nine of ten succeed":        {1, 8, 9, 1, 8, 9},
		"fewer than nine of ten":     {1, 8, 8, 1, 8, 8},
		"back to the maximum":        {1, 15, 10, 0, 15, 0},
	} {
		s := &slots{sub: &Subscription{}, minLimit: w.minLimit, maxLimit: 16, limit: w.limit, succeeded: w.good, failed: w.bad, peak: w.peak}
		s.adaptLocked()
		if s.limit != w.want {
			t.Errorf("%s: the limit is %d, want %d", name, s.limit, w.want)
		}
		if turned := (w.limit == 0) != (w.want == 0); turned != (len(s.guard.Changes) > 0) {
			t.Errorf("%s: the sink gets %v", name, s.guard.Changes)
		}
	}
}

// The limit shrinks to half of the peak, not of the configured limit, and the event says so.
func TestSlotsShrinkToHalfOfThePeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var details []string
		sub := &Subscription{MaxInFlight: 100, MinInFlight: 1, Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			details = append(details, e.(redeliver.SubscriptionChanged).Detail)
		})}
		sub.Start()
		w := &slotWaiter{wake: func() {}}
		for range 12 {
			sub.slots.acquire(firstDelivery, w)
		}
		for i := range 12 {
			sig := signalFailure
			if i < 2 {
				sig = signalSuccess
			}
			if i == 11 {
				<-time.After(time.Second)
			}
			sub.slots.release(firstDelivery, false, sig, 0)
		}
		if want := "10 of 12 messages failed in a second; at most 6 of 100 are in flight now, and fewer if that continues"; len(details) != 1 || details[0] != want {
			t.Errorf("reported %q, want %q", details, want)
		}
		if limit := sub.slots.currentLimit(); limit != 6 {
			t.Errorf("the limit is %d, want 6", limit)
		}
	})
}

// A message that is in flight from one window to the next counts in both.
func TestAMessageStillInFlightCountsInTheNextWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sub := &Subscription{MaxInFlight: 100, MinInFlight: 1}
		sub.Start()
		w := &slotWaiter{wake: func() {}}
		for range 21 {
			sub.slots.acquire(firstDelivery, w)
		}
		sub.slots.release(firstDelivery, false, signalSuccess, 0)
		<-time.After(time.Second)
		for range 10 {
			sub.slots.release(firstDelivery, false, signalSuccess, 0)
		}
		<-time.After(time.Second)
		sub.slots.release(firstDelivery, false, signalSuccess, 0) // the window of 10 in flight begins
		for range 9 {
			sub.slots.release(firstDelivery, false, signalFailure, 0)
		}
		<-time.After(time.Second)
		sub.slots.endWithoutSlot(signalFailure, 0)
		if limit := sub.slots.currentLimit(); limit < 2 {
			t.Errorf("the limit is %d, of about 10 in flight", limit)
		}
	})
}

// testQueue is the slots of a subscription, and lanes that wait for them.
type testQueue struct {
	*slots
	woken []int // lanes, in order; guarded by the lock of slots
	all   []*slotWaiter
}

func newTestQueue(lanes int, sub *Subscription) *testQueue {
	sub.Start()
	q := &testQueue{slots: &sub.slots}
	for i := range lanes {
		q.all = append(q.all, &slotWaiter{wake: func() { q.woken = append(q.woken, i) }})
	}
	return q
}

func (q *testQueue) lanesWoken() []int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.woken)
}

func (q *testQueue) acquires(lane int) bool {
	ok, _ := q.acquire(firstDelivery, q.all[lane])
	return ok
}

// Lanes get slots in the order in which they asked. If a lane yields its slot, or ends, the next lane gets it.
func TestLanesGetSlotsInOrder(t *testing.T) {
	q := newTestQueue(4, &Subscription{MaxInFlight: 1})
	if !q.acquires(0) || q.acquires(1) || q.acquires(2) || q.acquires(3) {
		t.Fatal("there is no slot")
	}
	q.yield(firstDelivery, q.all[2]) // it ends, or has no ready message any more, while it waits
	q.release(firstDelivery, false, signalNone, 0)
	if q.acquires(0) || q.acquires(2) || q.acquires(3) {
		t.Error("the slot did not go to the lane that has waited longest")
	}
	q.yield(firstDelivery, q.all[1]) // its ready message is gone
	if q.acquires(1) || !q.acquires(3) {
		t.Error("the slot that a lane yielded did not go to the next lane")
	}
	q.release(firstDelivery, false, signalNone, 0)
	for _, lane := range q.all {
		q.yield(firstDelivery, lane)
	}
	if !q.acquires(2) {
		t.Error("the slot is lost")
	}
}

// A lane with more messages does not take the slot that was promised to another one. Otherwise it would take each slot that it has
// released, and the other lane would wait until the first one has no more messages.
func TestALaneDoesNotTakeAPromisedSlot(t *testing.T) {
	for name, sub := range map[string]*Subscription{
		"one slot":     {MaxInFlight: 1},
		"a rate":       {MaxInFlight: 9, Policy: redeliver.Policy{Rate: redeliver.Rate{PerSecond: 1, Burst: 1}}},
		"common limit": {MaxInFlight: 9, MinInFlight: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newTestQueue(2, sub)
			if name == "common limit" {
				q.limit = 1
			}
			if !q.acquires(0) || q.acquires(1) {
				t.Fatalf("%s: there is not exactly one slot", name)
			}
			for round := range 4 {
				has, waits := round%2, 1-round%2
				q.release(firstDelivery, false, signalNone, 0)
				<-time.After(2 * time.Second) // the rate allows one a second
				synctest.Wait()
				if woken := q.lanesWoken(); len(woken) != round+1 || woken[round] != waits {
					t.Fatalf("%s: lanes %v were woken, want lane %d to be the last", name, woken, waits)
				}
				if q.acquires(has) {
					t.Fatalf("%s: the lane that gave the slot back has it again", name)
				}
				if !q.acquires(waits) {
					t.Fatalf("%s: the lane that was woken gets no slot", name)
				}
			}
		})
	}
}

// A lane may take the slots that are not promised.
func TestALaneTakesASlotBesideAPromisedOne(t *testing.T) {
	q := newTestQueue(2, &Subscription{MaxInFlight: 2})
	for range 2 {
		if !q.acquires(0) {
			t.Fatal("there are not two slots")
		}
	}
	if q.acquires(1) {
		t.Fatal("there are more than two slots")
	}
	q.release(firstDelivery, false, signalNone, 0)
	q.release(firstDelivery, false, signalNone, 0)
	if !q.acquires(0) || q.acquires(0) || !q.acquires(1) {
		t.Error("the lanes do not get one slot each")
	}
}

// outageOf begins an outage, and returns its pause.
func outageOf(q *testQueue) time.Duration {
	o := q.sub.Policy.Outage
	for key := range uint64(o.MinKeys) {
		q.countFailure(&guard.Failure{Key: key}, 0)
	}
	return o.Probe
}

// The probes of an outage are the messages that have waited longest, one at a time. The first begins when the pause is
// over, also in a subscription that has run for a long time.
func TestProbesAreTheMessagesThatWaitedLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(4, &Subscription{MaxInFlight: 10, Policy: redeliver.Policy{}.WithDefaults()})
		<-time.After(time.Hour)
		pause := outageOf(q)
		for lane := range q.all {
			if q.acquires(lane) {
				t.Fatalf("lane %d has a slot in the pause", lane)
			}
		}
		<-time.After(pause - 1)
		synctest.Wait()
		if woken := q.lanesWoken(); len(woken) > 0 {
			t.Errorf("lanes %v were woken before the pause was over", woken)
		}
		<-time.After(1)
		for want := range q.all {
			synctest.Wait()
			if woken := q.lanesWoken(); len(woken) != want+1 || woken[want] != want {
				t.Fatalf("lanes %v were woken, want %d to be the last", woken, want)
			}
			ok, probe := q.acquire(firstDelivery, q.all[want])
			if !ok || !probe {
				t.Fatalf("lane %d: a slot %t, as a probe %t", want, ok, probe)
			}
			q.release(firstDelivery, true, signalNone, 0) // it says nothing
		}
	})
}

// A lane that gives up its turn, or ends, leaves its probe to the next lane at once. A probe that does not end delays the next for
// MaxPause.
func TestALaneThatGivesUpPassesItsProbeOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(3, &Subscription{MaxInFlight: 10, Policy: redeliver.Policy{}.WithDefaults()})
		pause := outageOf(q)
		for lane := range q.all {
			q.acquires(lane)
		}
		<-time.After(pause)
		synctest.Wait()
		q.yield(firstDelivery, q.all[0])
		if q.acquires(2) || !q.acquires(1) {
			t.Fatal("the probe is not the second lane's")
		}
		began := time.Now()
		for !q.acquires(2) && time.Since(began) < time.Hour {
			<-time.After(time.Second)
			synctest.Wait() // the alarm of the same moment
		}
		if waited := time.Since(began); waited != q.sub.Policy.Outage.MaxPause {
			t.Errorf("another probe begins %s after one that does not end, want %s", waited, q.sub.Policy.Outage.MaxPause)
		}
		q.release(firstDelivery, true, signalNone, 0)
		q.release(firstDelivery, true, signalNone, 0)
		if q.guard.Probes != 0 || q.inFlight != 0 {
			t.Errorf("%d probes of %d messages run", q.guard.Probes, q.inFlight)
		}
	})
}

// A step of the slots reads the clock once, to see whether a probe may begin and to set the alarm. With two readings a pause could
// end in between, without an alarm, and nothing would begin again.
func TestAPauseThatEndsDuringAStepWakesTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(1, &Subscription{MaxInFlight: 10, Policy: redeliver.Policy{}.WithDefaults()})
		outageOf(q)
		q.alarm.Stop() // it has not fired yet
		q.acquires(0)
		<-time.After(q.sub.Policy.Outage.Probe)
		if !q.acquires(0) {
			q.release(firstDelivery, false, signalNone, 0) // some message in flight ends
		}
		if len(q.lanesWoken()) == 0 && q.inFlight == 0 {
			t.Error("the waiting lane was not woken")
		}
	})
}

// A handler that asks for a pause stops first deliveries and retries. The first probe that does not ask again ends the
// pause, whatever its outcome. A shorter pause does not end a longer one.
func TestAHandlerPausesItsSubscription(t *testing.T) {
	for name, outcome := range map[string]signal{"a success": signalSuccess, "a failure": signalFailure} {
		synctest.Test(t, func(t *testing.T) {
			var changes []redeliver.Change
			q := newTestQueue(3, &Subscription{MaxInFlight: 10, MaxRetriesInFlight: 10, Sink: redeliver.SinkFunc(func(e redeliver.Event) {
				changes = append(changes, e.(redeliver.SubscriptionChanged).Change)
			})})
			<-time.After(time.Hour)
			q.acquire(firstDelivery, q.all[0])
			q.pause(time.Minute, redeliver.ErrNacked)
			q.pause(time.Second, redeliver.ErrNacked)
			q.release(firstDelivery, false, signalFailure, 0)
			retries := &slotWaiter{wake: func() {}}
			first, _ := q.acquire(firstDelivery, q.all[0])
			again, _ := q.acquire(retry, retries)
			if first || again {
				t.Fatalf("%s: in the pause a first delivery began: %t; a retry began: %t", name, first, again)
			}
			q.yield(retry, retries)
			<-time.After(time.Minute - 1)
			synctest.Wait()
			if woken := q.lanesWoken(); len(woken) > 0 {
				t.Errorf("%s: lanes %v were woken before the pause was over", name, woken)
			}
			<-time.After(1)
			synctest.Wait()
			for range 2 {
				if ok, probe := q.acquire(firstDelivery, q.all[0]); !ok || !probe || q.acquires(1) {
					t.Fatalf("%s: the first message does not run alone as a probe", name)
				}
				q.pause(time.Second, redeliver.ErrNacked) // the probe asks again
				q.release(firstDelivery, true, signalFailure, 0)
				if q.acquires(0) {
					t.Fatalf("%s: a message began although the probe asked again", name)
				}
				<-time.After(time.Second)
				synctest.Wait()
				q.yield(firstDelivery, q.all[1])
			}
			if ok, _ := q.acquire(firstDelivery, q.all[0]); !ok {
				t.Fatalf("%s: no probe after the pause", name)
			}
			q.release(firstDelivery, true, signalNone, 0) // it says nothing
			if ok, probe := q.acquire(firstDelivery, q.all[0]); !ok || !probe {
				t.Fatalf("%s: no probe after an inconclusive one", name)
			}
			q.release(firstDelivery, true, outcome, 0)
			if !q.acquires(0) || !q.acquires(1) {
				t.Errorf("%s: messages still do not begin", name)
			}
			if want := []redeliver.Change{redeliver.ChangePaused, redeliver.ChangeResumed}; !slices.Equal(changes, want) {
				t.Errorf("%s: the sink got %q, want %q", name, changes, want)
			}
		})
	}
}

package delayqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
)

// A window in which half of the messages failed shrinks what may be in flight, one in which
// nine of ten succeeded lets it grow; few failures begin nothing.
func TestWhatAWindowSaysOfTheRoom(t *testing.T) {
	type window struct {
		least, limit, good, bad, peak, want int
	}
	for name, w := range map[string]window{
		"half failed":             {1, 0, 10, 10, 8, 4},
		"fewer than half":         {1, 0, 11, 10, 8, 0},
		"few failed":              {1, 0, 0, 9, 8, 0},
		"more in use than may be": {1, 0, 0, 10, 100, 8},
		"shrunk, and one failed":  {1, 8, 1, 1, 8, 4},
		"shrunk, and none ended":  {1, 8, 0, 0, 8, 8},
		"not below the least":     {3, 4, 0, 10, 4, 3},
		"nine of ten succeed":     {1, 8, 9, 1, 8, 9},
		"fewer than nine of ten":  {1, 8, 8, 1, 8, 8},
		"all that there was":      {1, 15, 10, 0, 15, 0},
		"it does not shrink":      {0, 0, 0, 100, 16, 0},
	} {
		room := &Throttle{sub: &Subscription{}, least: w.least, most: 16, limit: w.limit, good: w.good, bad: w.bad, peak: w.peak}
		told := room.turn() != nil
		if room.limit != w.want {
			t.Errorf("%s: there is room for %d, want %d", name, room.limit, w.want)
		}
		if turned := (w.limit == 0) != (w.want == 0); told != turned {
			t.Errorf("%s: told: %t", name, told)
		}
	}
}

// Who gives up just when it has got room, as a probe or not, leaves it to the next; and
// who comes when its time is over gets none, also where nothing is bounded.
func TestWhoGivesUpLeavesItsRoom(t *testing.T) {
	policy := redeliver.Policy{Outage: redeliver.DefaultOutage()}.WithDefaults()
	room := &Throttle{sub: &Subscription{}, guard: newGuard(&policy)}
	room.guard.outage.phase = halfOpen
	gone, next := room.push(), room.push()
	room.serve()
	if !gone.has() || !gone.probe || next.has() {
		t.Fatalf("the first is no probe, or not alone: %+v, %+v", gone, next)
	}
	if room.quit(gone); !next.has() || !next.probe || room.guard.out != 1 || room.in != 1 {
		t.Errorf("the next is no probe: %+v; %d are in flight, %d as probes", next, room.in, room.guard.out)
	}
	room.alarm.Stop()

	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, room := range map[string]*Throttle{"bounded": {least: 1, most: 16}, "unbounded": {}} {
		if !room.Enter(t.Context(), nil) || room.Enter(over, nil) {
			t.Errorf("%s: no room for who comes, or some for who has gone", name)
		}
	}
}

// A pause that ends between two looks at the clock, the one at whether a probe may begin
// and the one at when to look again, had no timer set for it: nothing ever began again,
// where nothing was in flight any more.
func TestAPauseThatEndsBetweenTwoLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := redeliver.Policy{Outage: redeliver.DefaultOutage()}.WithDefaults()
		room := &Throttle{sub: &Subscription{}, guard: newGuard(&policy)}
		room.guard.outage.trip(0)
		w := room.push() // it may not begin yet
		room.arm()
		room.alarm.Stop()
		<-time.After(policy.Outage.Probe)
		room.armed = 0
		room.mu.Lock()
		room.arm()
		room.mu.Unlock()
		select {
		case <-w.room:
		case <-time.After(time.Hour):
			t.Fatal("nobody looks again")
		}
		if !w.probe || room.guard.out != 1 {
			t.Errorf("it began as no probe: %+v", w)
		}
		room.alarm.Stop()
	})
}

// Who may be a probe is who has waited longest, whether for room or, with the room that it
// has, in place; the first one is when the pause has ended, however old the guard is.
func TestProbesAreThoseThatHaveWaitedLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := redeliver.Policy{Outage: redeliver.DefaultOutage()}.WithDefaults()
		sub := &Subscription{}
		room := &sub.Throttle
		room.sub, room.guard = sub, newGuard(&policy)
		<-time.After(time.Hour)
		room.guard.outage.trip(room.guard.now())
		start, probes := time.Now(), make(chan int)
		for i, inPlace := range []bool{false, true, true, false, false, true} {
			d := &Delivery{Sub: sub}
			d.Begin(t.Context())
			go func() {
				if inPlace {
					room.resume(d)
				} else {
					room.Enter(t.Context(), d)
				}
				probes <- i
			}()
			synctest.Wait()
		}
		for want := range 6 {
			if got := <-probes; got != want {
				t.Errorf("probe %d is of message %d", want, got)
			}
			if waited := time.Since(start); waited != policy.Outage.Probe {
				t.Errorf("probe %d began after %s, want %s", want, waited, policy.Outage.Probe)
			}
			room.give(0, 1)
		}
	})
}

// A message that is lost to this process just when it was to be a probe leaves that to
// the next.
func TestAProbeThatIsLostIsTheNexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := redeliver.Policy{Outage: redeliver.DefaultOutage()}.WithDefaults()
		room := &Throttle{sub: &Subscription{}, guard: newGuard(&policy)}
		room.guard.outage.trip(0)
		<-time.After(policy.Outage.Probe)
		lost := &waiter{room: make(chan struct{})}
		room.resumers.Push(lost)
		next := room.push()
		room.serve()
		if !lost.has() || !lost.probe || next.has() {
			t.Fatalf("who waits longest is no probe, or not alone: %+v, %+v", lost, next)
		}
		if room.leave(lost); !next.has() || !next.probe || room.guard.out != 1 {
			t.Errorf("the next one is no probe: %+v, and %d are out", next, room.guard.out)
		}
		room.alarm.Stop()
	})
}

package delayqueue

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
)

// rule is an outage of three keys.
func rule() redeliver.Outage {
	p := redeliver.Policy{Outage: redeliver.Outage{MinKeys: 3, Share: 0.75, Window: 10 * time.Second, Probe: time.Second, MaxPause: 3 * time.Second, Probes: 2}}
	return p.WithDefaults().Outage
}

// Failures are spread when the latest of enough keys failed for one cause, within the
// window, and few attempts have succeeded meanwhile.
func TestSpread(t *testing.T) {
	type at struct {
		after     time.Duration
		what, key uint64 // what 0: it succeeded
	}
	ms := time.Millisecond
	for name, c := range map[string]struct {
		ends []at
		want bool
	}{
		"three keys":                     {[]at{{0, 1, 1}, {ms, 1, 2}, {ms, 1, 3}}, true},
		"two keys, often":                {[]at{{0, 1, 1}, {ms, 1, 2}, {ms, 1, 1}, {ms, 1, 2}, {ms, 1, 1}}, false},
		"three causes":                   {[]at{{0, 1, 1}, {ms, 2, 2}, {ms, 3, 3}}, false},
		"one cause among another's":      {[]at{{0, 1, 1}, {ms, 2, 9}, {ms, 1, 2}, {ms, 2, 8}, {ms, 1, 3}}, true},
		"within the window":              {[]at{{0, 1, 1}, {5000 * ms, 1, 2}, {5000 * ms, 1, 3}}, true},
		"longer than the window":         {[]at{{0, 1, 1}, {5000 * ms, 1, 2}, {5001 * ms, 1, 3}}, false},
		"the first failed again":         {[]at{{0, 1, 1}, {5000 * ms, 1, 2}, {ms, 1, 1}, {5001 * ms, 1, 3}}, true},
		"the last three of four":         {[]at{{0, 1, 1}, {9000 * ms, 1, 2}, {1001 * ms, 1, 3}, {7000 * ms, 1, 4}}, true},
		"a success among four":           {[]at{{0, 1, 1}, {ms, 1, 2}, {ms, 0, 0}, {ms, 1, 3}}, true},
		"two successes among five":       {[]at{{0, 1, 1}, {ms, 1, 2}, {ms, 0, 0}, {ms, 0, 0}, {ms, 1, 3}}, false},
		"successes before do not matter": {[]at{{0, 0, 0}, {ms, 0, 0}, {ms, 0, 0}, {ms, 1, 1}, {ms, 1, 2}, {ms, 1, 3}}, true},
	} {
		s := newSpread(rule())
		got, now := false, time.Duration(0)
		for i, e := range c.ends {
			if now += e.after; e.what == 0 {
				s.succeed()
				continue
			}
			if got = s.fail(e.what, e.key, now); got && i < len(c.ends)-1 {
				t.Errorf("%s: spread after %d", name, i+1)
			}
		}
		if got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Whatever fails, what is known is bounded.
func TestSpreadIsBounded(t *testing.T) {
	s := newSpread(rule())
	for i := range uint64(10_000) {
		s.fail(i%100, i, time.Duration(i))
	}
	keys := 0
	for _, c := range s.causes {
		keys += len(c.keys)
	}
	if len(s.causes) != causesMost || keys > causesMost*3 {
		t.Errorf("%d causes with %d keys", len(s.causes), keys)
	}
	if s = newSpread(rule()); s.fail(1, 1, 0) || s.fail(1, 2, 0) || !s.fail(1, 3, 0) {
		t.Error("the bound has changed what is told")
	}
}

// One line for each step of an outage: who ends when, and what it means.
func TestOutage(t *testing.T) {
	type step struct {
		at    int // in seconds
		probe bool
		id    uint64 // 0: a success
		what  uint64
		want  ruling
	}
	begun := []step{{0, false, 1, 7, asEver}, {0, false, 2, 7, asEver}, {0, false, 3, 7, begins}}
	for name, c := range map[string]struct {
		then  []step
		phase phase
		until int // in seconds
	}{
		"begins":                      {nil, paused, 1},
		"in flight before":            {[]step{{0, false, 4, 7, lasts}, {0, false, 0, 0, lasts}}, paused, 1},
		"two succeed":                 {[]step{{1, true, 0, 0, mends}, {1, true, 0, 0, ends}}, closed, 0},
		"pauses grow":                 {[]step{{1, true, 1, 7, lasts}, {3, true, 2, 7, lasts}, {6, true, 3, 7, lasts}}, paused, 9},
		"a success does not do":       {[]step{{1, true, 0, 0, mends}, {1, true, 1, 7, falters}}, paused, 3},
		"and counts no more":          {[]step{{1, true, 0, 0, mends}, {1, true, 1, 7, falters}, {3, true, 0, 0, mends}, {3, true, 0, 0, ends}}, closed, 0},
		"poison does not grow":        {[]step{{1, true, 1, 8, lasts}, {2, true, 2, 9, lasts}}, paused, 3},
		"nor takes successes back":    {[]step{{1, true, 0, 0, mends}, {1, true, 1, 8, lasts}, {2, true, 0, 0, ends}}, closed, 0},
		"three say the same":          {[]step{{1, true, 1, 8, lasts}, {2, true, 2, 8, lasts}, {3, true, 3, 8, lasts}, {5, true, 4, 8, lasts}}, paused, 8},
		"one says it three times":     {[]step{{1, true, 1, 8, lasts}, {2, true, 1, 8, lasts}, {3, true, 1, 8, lasts}, {4, true, 1, 8, lasts}}, paused, 5},
		"one alone, five times":       {[]step{{1, true, 1, 7, lasts}, {3, true, 1, 7, lasts}, {6, true, 1, 7, lasts}, {9, true, 1, 7, lasts}, {12, true, 1, 7, isSolo}}, closed, 0},
		"two by turns are not alone":  {[]step{{1, true, 1, 7, lasts}, {3, true, 2, 7, lasts}, {6, true, 1, 7, lasts}, {9, true, 2, 7, lasts}, {12, true, 1, 7, lasts}, {15, true, 2, 7, lasts}}, paused, 18},
		"it begins anew from nothing": {[]step{{1, true, 0, 0, mends}, {1, true, 0, 0, ends}, {1, false, 4, 7, asEver}, {1, false, 5, 7, asEver}}, closed, 0},
	} {
		o := newOutage(rule())
		for i, s := range slices.Concat(begun, c.then) {
			now := time.Duration(s.at) * time.Second
			if s.probe {
				if o.wake(now); o.phase != halfOpen {
					t.Fatalf("%s: step %d finds it in phase %d", name, i, o.phase)
				}
			}
			var got ruling
			if s.id == 0 {
				got = o.succeeded(s.probe, now)
			} else {
				got = o.failed(&failure{print: s.what, key: s.id, id: s.id, probe: s.probe}, now)
			}
			if got != s.want {
				t.Errorf("%s: step %d is %d, want %d", name, i, got, s.want)
			}
		}
		if o.phase != c.phase || c.phase == paused && o.until != time.Duration(c.until)*time.Second {
			t.Errorf("%s: phase %d until %s, want %d until %ds", name, o.phase, o.until, c.phase, c.until)
		}
	}
}

// What failed before, and counted, while others succeeded says nothing when it fails again.
func TestPoisonThatIsLeftOverIsNoOutage(t *testing.T) {
	for name, c := range map[string]struct {
		counted bool
		since   time.Duration
		well    int
		want    bool
	}{
		"first attempts":             {false, 0, 100, true},
		"retries of poison":          {true, 5 * time.Second, 100, false},
		"retries, and none succeeds": {true, 5 * time.Second, 0, true},
		"hours old, others succeed":  {true, 5 * time.Hour, 100, false},
		"successes are few":          {true, 5 * time.Second, 1, true},
	} {
		o := newOutage(rule())
		for range c.well {
			o.succeeded(false, time.Second)
		}
		for i := range 6 { // of one key: that is no outage
			o.failed(&failure{print: 7, key: 99, id: uint64(i)}, time.Second)
		}
		got := false
		for key := range uint64(3) {
			got = o.failed(&failure{print: 7, key: key, id: key, counted: c.counted, since: c.since}, 3*time.Second) == begins || got
		}
		if got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestRate(t *testing.T) {
	r := newRate(10 * time.Second)
	for i := range 10 {
		r.add(time.Duration(i) * time.Second)
	}
	for _, c := range []struct {
		now  int
		want int64
	}{{9, 10}, {10, 9}, {14, 5}, {18, 1}, {19, 0}, {20, 0}, {1000, 0}} {
		if got := r.of(time.Duration(c.now) * time.Second); got != c.want {
			t.Errorf("%d within 10 s before %d s, want %d", got, c.now, c.want)
		}
	}
	r.add(1001 * time.Second)
	r.add(1004 * time.Second)
	for _, c := range []struct {
		from int
		want int64
	}{{-5, 2}, {1000, 2}, {1001, 2}, {1002, 1}, {1005, 0}} {
		if got := r.since(time.Duration(c.from)*time.Second, 1005*time.Second); got != c.want {
			t.Errorf("%d since %d s, want %d", got, c.from, c.want)
		}
	}
}

func TestBudget(t *testing.T) {
	policy := redeliver.Policy{RetryBudget: redeliver.RetryBudget{Floor: 1}}
	for name, c := range map[string]struct {
		firsts, retries int
		want            int
	}{
		"within the floor":    {0, 10, 1},
		"above it":            {0, 11, 2},
		"within the share":    {500, 110, 1},
		"above it, by little": {500, 111, 2},
		"by twice":            {500, 221, 4},
		"by four times":       {500, 441, 8},
		"by a hundred times":  {0, 1000, 8},
	} {
		b := newBudget(policy.WithDefaults().RetryBudget)
		for range c.firsts {
			b.firsts.add(time.Second)
		}
		got := 0
		for range c.retries {
			got = b.retry(2 * time.Second)
		}
		if got != c.want {
			t.Errorf("%s: %d times as long, want %d", name, got, c.want)
		}
		if changed := b.turn(2 * time.Second); changed != (c.want > 1) {
			t.Errorf("%s: spent: %t", name, changed)
		}
		if changed := b.turn(20 * time.Second); changed != (c.want > 1) {
			t.Errorf("%s: back: %t", name, changed)
		}
	}
}

func TestFlood(t *testing.T) {
	policy := redeliver.Policy{DeadLetterRate: redeliver.DeadLetterRate{Most: 3, Trickle: 2}}
	f := newFlood(policy.WithDefaults().DeadLetterRate)
	var got []string
	buried := func(probe bool, at time.Duration) {
		f.wake(at)
		got = append(got, fmt.Sprint(f.buried(probe, at)))
	}
	for i := range 4 {
		buried(false, time.Duration(i)*time.Second)
	}
	buried(false, 10*time.Second) // it was decided before
	buried(true, 63*time.Second)
	f.wake(122 * time.Second)
	if f.phase != paused {
		t.Error("open too soon")
	}
	f.wake(123 * time.Second)
	got = append(got, fmt.Sprint(f.succeeded(true), f.succeeded(false), f.succeeded(true)))
	buried(false, 124*time.Second)
	want := []string{"0", "0", "0", "1", "2", "2", fmt.Sprint(lasts, asEver, ends), "0"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
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

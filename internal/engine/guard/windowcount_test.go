package guard

import (
	"slices"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

func TestAWindowCountForgetsOldEvents(t *testing.T) {
	r := newWindowCount(10 * time.Second)
	for i := range 10 {
		r.add(time.Duration(i) * time.Second)
	}
	for _, c := range []struct {
		now  int
		want int64
	}{{9, 10}, {10, 9}, {14, 5}, {18, 1}, {19, 0}, {20, 0}, {1000, 0}} {
		if r.advance(time.Duration(c.now) * time.Second); r.sum != c.want {
			t.Errorf("%d within 10 s before %d s, want %d", r.sum, c.now, c.want)
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
	r.add(1005 * time.Second)
	if got := r.since(1005*time.Second, 1005*time.Second); got != 1 {
		t.Errorf("%d in the present part, want 1", got)
	}
}

func TestAFloodBeginsAndEnds(t *testing.T) {
	policy := redeliver.Policy{DeadLetterRate: redeliver.DeadLetterRate{Max: 3, Probes: 2}}
	var reported Changes
	f := newFlood(policy.WithDefaults().DeadLetterRate, &reported)
	deadLettered := func(probe bool, at time.Duration) {
		f.endPause(at)
		f.deadLettered(probe, at)
	}
	want := func(when string, changes ...redeliver.Change) {
		t.Helper()
		var got []redeliver.Change
		for _, c := range reported {
			got = append(got, c.Change)
		}
		if reported = nil; !slices.Equal(got, changes) {
			t.Errorf("%s: %q, want %q", when, got, changes)
		}
	}
	for i := range 3 {
		deadLettered(false, time.Duration(i)*time.Second)
	}
	want("as many as allowed")
	deadLettered(false, 3*time.Second)
	want("one more", redeliver.ChangeFlood)
	deadLettered(false, 10*time.Second) // it was decided earlier
	deadLettered(true, 63*time.Second)
	want("while it continues")
	f.endPause(122 * time.Second)
	if f.state != breakerOpen {
		t.Error("open too soon")
	}
	f.endPause(123 * time.Second)
	f.succeeded(true)
	f.succeeded(false) // no probe
	want("after one success")
	f.succeeded(true)
	want("after two", redeliver.ChangeFloodOver)
	for i := range 3 { // as many, and as spread, as at first
		deadLettered(false, time.Duration(124+i)*time.Second)
	}
	want("as many again")
	deadLettered(false, 127*time.Second)
	want("one more", redeliver.ChangeFlood)
}

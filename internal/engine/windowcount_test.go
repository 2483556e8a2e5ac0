package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

func TestWindowCount(t *testing.T) {
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

func TestFlood(t *testing.T) {
	policy := redeliver.Policy{DeadLetterRate: redeliver.DeadLetterRate{Max: 3, Probes: 2}}
	f := newFlood(policy.WithDefaults().DeadLetterRate)
	var got []string
	buried := func(probe bool, at time.Duration) {
		f.endPause(at)
		got = append(got, fmt.Sprint(f.deadLettered(probe, at)))
	}
	for i := range 4 {
		buried(false, time.Duration(i)*time.Second)
	}
	buried(false, 10*time.Second) // it was decided earlier
	buried(true, 63*time.Second)
	f.endPause(122 * time.Second)
	if f.state != breakerOpen {
		t.Error("open too soon")
	}
	f.endPause(123 * time.Second)
	got = append(got, fmt.Sprint(f.succeeded(true), f.succeeded(false), f.succeeded(true)))
	for i := range 4 { // as many, and as spread, as at first
		buried(false, time.Duration(124+i)*time.Second)
	}
	want := []string{"0", "0", "0", "1", "2", "2", fmt.Sprint(stillOpen, unchanged, recovered), "0", "0", "0", "1"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

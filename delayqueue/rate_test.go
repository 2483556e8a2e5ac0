package delayqueue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

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
	r.add(1005 * time.Second)
	if got := r.since(1005*time.Second, 1005*time.Second); got != 1 {
		t.Errorf("%d in the part that is not over yet, want 1", got)
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
		"twice as much":       {500, 220, 2},
		"by twice":            {500, 221, 4},
		"four times as much":  {500, 440, 4},
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

// A budget that is spent is back when three quarters of it are used, and no sooner.
func TestABudgetIsBackWithSomeToSpare(t *testing.T) {
	policy := redeliver.Policy{RetryBudget: redeliver.RetryBudget{Floor: redeliver.NoFloor, Share: 0.5}}
	b := newBudget(policy.WithDefaults().RetryBudget)
	for range 3 {
		b.retry(time.Second)
	}
	if !b.turn(time.Second) {
		t.Error("three retries without a first attempt do not spend it")
	}
	for n := 1; n <= 8; n++ { // 3 of 4 is when it is back
		b.firsts.add(time.Second)
		if back := b.turn(time.Second); back != (n == 8) {
			t.Errorf("after %d first attempts: back: %t", n, back)
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
	for i := range 4 { // as many, as spread, as it took at first
		buried(false, time.Duration(124+i)*time.Second)
	}
	want := []string{"0", "0", "0", "1", "2", "2", fmt.Sprint(lasts, asEver, ends), "0", "0", "0", "1"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

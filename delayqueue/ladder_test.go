package delayqueue_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

const (
	ms     = time.Millisecond
	second = time.Second
	minute = time.Minute
	hour   = time.Hour
)

// listed is an unchecked Backoff of another package.
type listed []time.Duration

func (l listed) Delay(n int, _ float64) (time.Duration, bool) { return l[n%len(l)], true }
func (l listed) Delays(n int) ([]time.Duration, time.Duration) {
	return l[:min(n, len(l))], 0
}

func TestNewLadder(t *testing.T) {
	fromBackOff := redeliver.FromBackOff(func() backoff.BackOff { return backoff.NewExponentialBackOff() })
	for _, c := range []struct {
		name   string
		policy redeliver.Policy
		want   delayqueue.Ladder
	}{
		{"zero policy: exponential", redeliver.Policy{}, delayqueue.Ladder{second, 2 * second, 4 * second, 15 * second, minute, 10 * minute, hour}},
		{"to its maximum", redeliver.Policy{MaxRetries: 12}, // no minute twice: a coarse level that is also planned
			delayqueue.Ladder{second, 2 * second, 4 * second, 8 * second, 16 * second, 32 * second, minute, hour}},
		{"fixed, longer than the fine levels", redeliver.Policy{Backoff: redeliver.Fixed(30 * second)},
			delayqueue.Ladder{second, 5 * second, 30 * second, minute, 10 * minute, hour}},
		{"fixed, between the fine levels", redeliver.Policy{Backoff: redeliver.Fixed(3 * second)},
			delayqueue.Ladder{second, 3 * second, 15 * second, minute, 10 * minute, hour}},
		{"fixed, below the fine levels", redeliver.Policy{Backoff: redeliver.Fixed(100 * ms)}, delayqueue.Ladder{100 * ms, 15 * second, minute, 10 * minute, hour}},
		{"fixed, above the coarse levels", redeliver.Policy{Backoff: redeliver.Fixed(2 * hour)}, delayqueue.Ladder{second, 5 * second, 2 * hour}},
		{"RocketMQHTTP, 288 equal delays", redeliver.Policy{Backoff: redeliver.RocketMQHTTP()},
			delayqueue.Ladder{second, 5 * second, 5 * minute, 10 * minute, hour}},
		{"not ascending", redeliver.Policy{Backoff: redeliver.Steps(30*second, 10*second, 30*second)},
			delayqueue.Ladder{second, 5 * second, 10 * second, 30 * second, minute, 10 * minute, hour}},
		{"parts of a millisecond", redeliver.Policy{Backoff: redeliver.Steps(1900 * time.Microsecond)}, delayqueue.Ladder{ms, 15 * second, minute, 10 * minute, hour}},
		{"a millisecond, and a year", redeliver.Policy{Backoff: redeliver.Steps(ms, redeliver.MaxWait), MaxRetries: 2}, delayqueue.Ladder{ms, redeliver.MaxWait}},
		{"one delay often, another once", redeliver.Policy{Backoff: redeliver.Steps(10*second, 100*second), MaxRetries: 50, MaxLevels: 2}, delayqueue.Ladder{second, 100 * second}},
		{"no retries", redeliver.Policy{MaxRetries: redeliver.NoRetries}, delayqueue.Ladder{second, minute}},
		{"immediate retries only", redeliver.Policy{MaxRetries: 2, Immediate: 2}, delayqueue.Ladder{second, minute}},
		{"immediate retries plan no wait", redeliver.Policy{MaxRetries: 3, Immediate: 2}, delayqueue.Ladder{second, 15 * second, minute, 10 * minute, hour}},
		{"unlisted", redeliver.Policy{Backoff: fromBackOff}, delayqueue.Ladder{second, 5 * second, 30 * second, 2 * minute, 10 * minute, hour}},
		{"unlisted, thinned", redeliver.Policy{Backoff: fromBackOff, MaxLevels: 1}, delayqueue.Ladder{second}},
		{"a constant of cenkalti: one hop", redeliver.Policy{Backoff: redeliver.FromBackOff(func() backoff.BackOff { return backoff.NewConstantBackOff(10 * second) })},
			delayqueue.Ladder{second, 5 * second, 10 * second, 15 * second, minute, 10 * minute, hour}},
		{"4 s exponential of cenkalti: one hop", redeliver.Policy{Backoff: redeliver.FromBackOff(func() backoff.BackOff {
			return backoff.NewExponentialBackOff(backoff.WithInitialInterval(4*second), backoff.WithMultiplier(2), backoff.WithRandomizationFactor(0))
		})}, delayqueue.Ladder{second, 4 * second, 8 * second, 16 * second, minute, 10 * minute, hour}},
		{"a factor of 3", redeliver.Policy{Backoff: redeliver.ExponentialBackoff{Factor: 3, Jitter: 0.2}}, delayqueue.Ladder{second, 3 * second, 9 * second, 15 * second, minute, 10 * minute, hour}},
		{"levels given", redeliver.Policy{Levels: []time.Duration{7 * second, 9 * second}, MaxLevels: 1}, delayqueue.Ladder{7 * second, 9 * second}},
		{"one level", redeliver.Policy{MaxLevels: 1}, delayqueue.Ladder{second}},
		{"one level, no retries", redeliver.Policy{MaxLevels: 1, MaxRetries: redeliver.NoRetries}, delayqueue.Ladder{second}},
		{"as many as planned", redeliver.Policy{MaxLevels: 3}, delayqueue.Ladder{second, 2 * second, 4 * second}},
		{"invalid delays of a foreign backoff", redeliver.Policy{Backoff: listed{0, -second, time.Microsecond, math.MaxInt64, 3 * second}, MaxRetries: 9},
			delayqueue.Ladder{second, 3 * second, 15 * second, minute, 10 * minute, hour}},
		{"no valid delay of a foreign backoff", redeliver.Policy{Backoff: listed{0}}, delayqueue.Ladder{second, minute}},
	} {
		if got := delayqueue.NewLadder(c.policy); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %v\nwant %v", c.name, got, c.want)
		}
	}
}

// The policy may be changed after its ladder was created.
func TestNewLadderCopiesLevels(t *testing.T) {
	levels := []time.Duration{second, minute}
	l := delayqueue.NewLadder(redeliver.Policy{Levels: levels})
	levels[0] = hour
	if l[0] != second {
		t.Errorf("the ladder is %v after the policy's levels were changed", l)
	}
}

func TestEveryPlannedDelayIsOneHop(t *testing.T) {
	for _, b := range []redeliver.Backoff{
		redeliver.Exponential(), redeliver.RocketMQ(), redeliver.RocketMQHTTP(),
		redeliver.Fixed(90 * second), redeliver.Steps(second, hour, 3*second), redeliver.ExponentialBackoff{Base: 10 * ms, Max: 24 * hour},
	} {
		p := redeliver.Policy{Backoff: b, MaxLevels: 64}
		l := delayqueue.NewLadder(p)
		delays, _, _ := p.Delays()
		if len(delays) == 0 {
			t.Errorf("%T plans no delays", b)
		}
		for _, d := range delays {
			if path := l.Path(d); len(path) != 1 || path[0] != d {
				t.Errorf("%T: %s waits on %v of %v", b, d, path, l)
			}
		}
	}
}

// A wait that a handler requests with RetryAfter is in no plan, and still must not take many hops.
func TestRetryAfterTakesFewHopsByDefault(t *testing.T) {
	l := delayqueue.NewLadder(redeliver.Policy{})
	if len(l) > 8 {
		t.Errorf("%d levels: %v", len(l), l)
	}
	for _, d := range []time.Duration{15 * second, 30 * second, 59 * second, 5 * minute, 45 * minute} {
		n := len(l.Path(d))
		t.Logf("%s: %d hops", d, n)
		if n > 9 {
			t.Errorf("%s takes %d hops on %v", d, n, l)
		}
	}
}

// hops returns the number of hops of the delays on a ladder, by the greedy rule.
func hops(l delayqueue.Ladder, delays []time.Duration) (n int) {
	for _, d := range delays {
		for _, level := range slices.Backward(l) {
			n += int(d / level)
			d %= level
		}
	}
	return n
}

// optimum returns the fewest hops of any ladder that has at most most of the levels and includes the smallest.
func optimum(levels delayqueue.Ladder, delays []time.Duration, most int) int {
	best := math.MaxInt
	var choose func(chosen delayqueue.Ladder, from int)
	choose = func(chosen delayqueue.Ladder, from int) {
		if len(chosen) == most {
			best = min(best, hops(chosen, delays))
			return
		}
		for i := from; i < len(levels); i++ {
			choose(append(chosen, levels[i]), i+1)
		}
	}
	choose(delayqueue.Ladder{levels[0]}, 1)
	return best
}

func TestRocketMQFitsIntoEightLevels(t *testing.T) {
	p := redeliver.Policy{Backoff: redeliver.RocketMQ()}
	l := delayqueue.NewLadder(p)
	delays, _, _ := p.Delays()
	if len(l) > 8 || l[0] != second || len(delays) != 16 {
		t.Fatalf("%d delays on %v: want 16 on at most 8 levels, the smallest 1s", len(delays), l)
	}
	p.MaxLevels = 64
	all := delayqueue.NewLadder(p)
	best, got := optimum(all, delays, 8), hops(l, delays)
	t.Logf("%v: %d hops, the optimum is %d", l, got, best)
	if got > best {
		t.Errorf("%v takes %d hops for the 16 retries, the best eight of %v take %d", l, got, all, best)
	}
}

func TestThinnedLaddersAreNearTheOptimum(t *testing.T) {
	worst := 1.0
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{second, 5 * second, minute})
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
			return unit.Draw(t, "unit") * time.Duration(rapid.IntRange(1, 60).Draw(t, "n"))
		}), 1, 6).Draw(t, "steps")
		p := redeliver.Policy{Backoff: redeliver.Steps(steps...), MaxRetries: len(steps), MaxLevels: 64}
		all := delayqueue.NewLadder(p)
		p.MaxLevels = rapid.IntRange(1, len(all)).Draw(t, "most")
		l := delayqueue.NewLadder(p)
		if len(l) != p.MaxLevels || l[0] != all[0] || !slices.IsSorted(l) {
			t.Fatalf("%d of %v are %v", p.MaxLevels, all, l)
		}
		got, best := hops(l, steps), optimum(all, steps, p.MaxLevels)
		worst = max(worst, float64(got)/float64(best))
		if got > 3*best { // of 300,000 random ladders one was above 2
			t.Fatalf("%v on %v take %d hops, the optimum is %d", steps, l, got, best)
		}
	})
	t.Logf("the worst ladder takes %.2f times the hops of the best one", worst)
}

// A ladder of one short level has as many hops for long waits as fit into the memory of a small machine, so they must
// be computed, not listed.
func TestThinningCountsHopsWithoutMakingThem(t *testing.T) {
	p := redeliver.Policy{Backoff: redeliver.Steps(ms, redeliver.MaxWait), MaxLevels: 1}
	if n := testing.AllocsPerRun(1, func() { delayqueue.NewLadder(p) }); n > 200 {
		t.Errorf("NewLadder makes %v allocations", n)
	}
}

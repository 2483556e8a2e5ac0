package redeliver_test

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// total returns the sum of the waits of the first n retries, without jitter.
func total(t *testing.T, b redeliver.Backoff, n int) time.Duration {
	t.Helper()
	var sum time.Duration
	for i := range n {
		d, ok := b.Delay(i, 0)
		if !ok {
			t.Fatalf("no retry %d of %d", i, n)
		}
		sum += d
	}
	return sum
}

func wantDelay(t *testing.T, b redeliver.Backoff, n int, want time.Duration) {
	t.Helper()
	if d, ok := b.Delay(n, 0); d != want || !ok {
		t.Errorf("delayed retry %d waits %s, %t; want %s", n, d, ok, want)
	}
}

func TestRocketMQHasTheDelaysOfRocketMQ(t *testing.T) {
	b := redeliver.RocketMQ()
	s, m := time.Second, time.Minute
	for n, want := range []time.Duration{
		10 * s, 30 * s, m, 2 * m, 3 * m, 4 * m, 5 * m, 6 * m, 7 * m, 8 * m, 9 * m, 10 * m, 20 * m, 30 * m, time.Hour, 2 * time.Hour,
	} {
		wantDelay(t, b, n, want)
	}
	// RocketMQ's documentation says 4h46m.
	if got, want := total(t, b, 16), 4*time.Hour+45*m+40*s; got != want {
		t.Errorf("16 retries wait %s, want %s", got, want)
	}
	for _, n := range []int{16, 17, 64, 1000, math.MaxInt} {
		wantDelay(t, b, n, 2*time.Hour)
	}
}

func TestRocketMQHTTPIsADayOfRetries(t *testing.T) {
	if got := total(t, redeliver.RocketMQHTTP(), 288); got != 24*time.Hour {
		t.Errorf("288 retries wait %s, want 24h", got)
	}
}

// A policy gets the number of retries that belongs to its backoff.
func TestABackoffMayHaveADefaultOfMaxRetries(t *testing.T) {
	for name, row := range map[string]struct {
		policy redeliver.Policy
		want   int
	}{
		"none":                          {redeliver.Policy{}, 3},
		"Exponential":                   {redeliver.Policy{Backoff: redeliver.Exponential()}, 3},
		"Fixed":                         {redeliver.Policy{Backoff: redeliver.Fixed(time.Second)}, 3},
		"Steps":                         {redeliver.Policy{Backoff: redeliver.Steps(1, 2, 3, 4, 5)}, 3},
		"RocketMQ":                      {redeliver.Policy{Backoff: redeliver.RocketMQ()}, 16},
		"RocketMQHTTP":                  {redeliver.Policy{Backoff: redeliver.RocketMQHTTP()}, 288},
		"RocketMQ, but the policy says": {redeliver.Policy{Backoff: redeliver.RocketMQ(), MaxRetries: 5}, 5},
		"RocketMQ, but none":            {redeliver.Policy{Backoff: redeliver.RocketMQ(), MaxRetries: redeliver.NoRetries}, redeliver.NoRetries},
	} {
		if got := row.policy.WithDefaults().MaxRetries; got != row.want {
			t.Errorf("%s: %d retries, want %d", name, got, row.want)
		}
	}
}

func TestExponentialDoublesToItsBound(t *testing.T) {
	day := 24 * time.Hour
	for name, row := range map[string]struct {
		b    redeliver.ExponentialBackoff
		want map[int]time.Duration
	}{
		"default": {redeliver.Exponential(), map[int]time.Duration{
			-1: time.Second, 0: time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 5: 32 * time.Second, 6: time.Minute,
			7: time.Minute, 64: time.Minute, 1000: time.Minute, math.MaxInt: time.Minute,
		}},
		"base only, longer than 60 s": {redeliver.ExponentialBackoff{Base: time.Hour}, map[int]time.Duration{0: time.Hour, 1: time.Hour, 64: time.Hour}},
		"max only":                    {redeliver.ExponentialBackoff{Max: 3 * time.Second}, map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 2: 3 * time.Second}},
		"max below base":              {redeliver.ExponentialBackoff{Base: time.Hour, Max: time.Second}, map[int]time.Duration{0: time.Second, 9: time.Second}},
		"an odd Max":                  {redeliver.ExponentialBackoff{Base: 2, Max: 5}, map[int]time.Duration{0: 2, 1: 4, 2: 5}},
		"huge":                        {redeliver.ExponentialBackoff{Base: 100 * 365 * day, Max: math.MaxInt64}, map[int]time.Duration{1: 200 * 365 * day, 2: math.MaxInt64, 64: math.MaxInt64, 1000: math.MaxInt64}},
		"the hugest":                  {redeliver.ExponentialBackoff{Base: math.MaxInt64}, map[int]time.Duration{0: math.MaxInt64, 64: math.MaxInt64}},
	} {
		t.Run(name, func(t *testing.T) {
			for n, want := range row.want {
				wantDelay(t, row.b, n, want)
			}
		})
	}
}

// A sum that overflows would be a negative wait, and so an immediate retry.
func TestExponentialJitterDoesNotOverflow(t *testing.T) {
	for _, b := range []redeliver.ExponentialBackoff{{Base: math.MaxInt64}, {Base: math.MaxInt64 / 2, Max: math.MaxInt64}, {Base: time.Hour, Max: math.MaxInt64}} {
		for _, n := range []int{0, 1, 64, 1000} {
			plain, _ := b.Delay(n, 0)
			if d, ok := b.Delay(n, math.Nextafter(1, 0)); d < plain || !ok {
				t.Errorf("%+v: retry %d waits %s, less than %s without jitter", b, n, d, plain)
			}
		}
	}
}

// The formula, with big integers: min(Max, Base * 2^n) + jitter in [0, Base).
func TestExponentialFollowsItsFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(1, math.MaxInt64).Draw(t, "base")
		most := rapid.Int64Range(1, math.MaxInt64).Draw(t, "max")
		n := rapid.IntRange(0, 1000).Draw(t, "n")
		share := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "draw")

		b := redeliver.ExponentialBackoff{Base: time.Duration(base), Max: time.Duration(most)}
		want := new(big.Int).Lsh(big.NewInt(base), uint(n))
		if want.Cmp(big.NewInt(most)) > 0 {
			want.SetInt64(most)
		}
		plain, ok := b.Delay(n, 0)
		if !ok || int64(plain) != want.Int64() {
			t.Fatalf("delay %d, want %s", int64(plain), want)
		}
		if d, _ := b.Delay(n, share); d < plain || d-plain > b.Base || (d-plain == b.Base && b.Base < 1<<50) {
			t.Fatalf("with a draw of %v the delay is %s, want from %s to less than %s more", share, d, plain, b.Base)
		}
	})
}

// With a factor and a share of jitter: Base * Factor^n, its share more at most, and never more than Max.
func TestExponentialKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := redeliver.ExponentialBackoff{
			Base: time.Duration(rapid.Int64Range(0, int64(redeliver.MaxWait)).Draw(t, "base")), Max: time.Duration(rapid.Int64Range(0, int64(redeliver.MaxWait)).Draw(t, "max")),
			Factor: rapid.OneOf(rapid.Just(0.0), rapid.Just(2.0), rapid.Float64Range(1, 100)).Draw(t, "factor"),
			Jitter: rapid.OneOf(rapid.Just(1.0), rapid.Float64Range(math.SmallestNonzeroFloat64, 1)).Draw(t, "jitter"),
		}
		if (redeliver.Policy{Backoff: b}).Validate("P") != nil {
			return
		}
		base, most, factor := cmp.Or(b.Base, time.Second), b.Max, cmp.Or(b.Factor, 2)
		if most == 0 {
			most = max(time.Minute, 2*base)
		}
		delays, widest := b.Delays(40)
		longest := redeliver.Policy{Backoff: b, MaxRetries: 40}.LongestDelays()
		for n, d := range delays {
			if want := min(float64(most), float64(base)*math.Pow(factor, float64(n))); b.Max != 0 && math.Abs(float64(d)-want) > 1+want/1e9 {
				t.Fatalf("delay %d is %s, want %s", n, d, time.Duration(want))
			}
			if n > 0 && d < delays[n-1] {
				t.Fatalf("delay %d is %s, shorter than the one before, %s", n, d, delays[n-1])
			}
			for _, draw := range []float64{0, rapid.Float64Range(0, 1).Draw(t, "draw"), math.Nextafter(1, 0)} {
				got, ok := b.Delay(n, draw)
				if !ok || got < d || got > most || got > longest[n] || longest[n]-d > widest || float64(got-d) > b.Jitter*float64(d)+1 {
					t.Fatalf("retry %d waits %s with a draw of %v, want %s to %s, with at most %s and the share %v more; and at most %s", n, got, draw, d, longest[n], widest, b.Jitter, most)
				}
				if draw == 0 && got != d {
					t.Fatalf("retry %d waits %s without jitter, but is listed with %s", n, got, d)
				}
			}
		}
	})
}

func TestExponentialHasAFactorAndAShareOfJitter(t *testing.T) {
	s := time.Second
	for name, row := range map[string]struct {
		b              redeliver.ExponentialBackoff
		delays, longer []time.Duration // without jitter, and with half of it
		jitter         time.Duration
	}{
		"the default":        {redeliver.ExponentialBackoff{}, []time.Duration{s, 2 * s, 4 * s}, []time.Duration{1500 * time.Millisecond, 2500 * time.Millisecond, 4500 * time.Millisecond}, s},
		"a factor":           {redeliver.ExponentialBackoff{Factor: 3}, []time.Duration{s, 3 * s, 9 * s, 27 * s, 60 * s}, []time.Duration{1500 * time.Millisecond, 3500 * time.Millisecond}, s},
		"a broken factor":    {redeliver.ExponentialBackoff{Factor: 1.5}, []time.Duration{s, 1500 * time.Millisecond, 2250 * time.Millisecond}, nil, s},
		"a constant":         {redeliver.ExponentialBackoff{Base: 10 * s, Factor: 1, Jitter: 0.2}, []time.Duration{10 * s, 10 * s, 10 * s}, []time.Duration{11 * s, 11 * s, 11 * s}, 2 * s},
		"a share":            {redeliver.ExponentialBackoff{Jitter: 0.5, Max: 6 * s}, []time.Duration{s, 2 * s, 4 * s, 6 * s, 6 * s}, []time.Duration{1250 * time.Millisecond, 2500 * time.Millisecond, 5 * s, 6 * s}, 2 * s},
		"a share up to Max":  {redeliver.ExponentialBackoff{Jitter: 1, Max: 5 * s}, []time.Duration{s, 2 * s, 4 * s, 5 * s}, []time.Duration{1500 * time.Millisecond, 3 * s, 4500 * time.Millisecond, 5 * s}, 2 * s},
		"a long first delay": {redeliver.ExponentialBackoff{Base: 60 * s, Jitter: 0.5}, []time.Duration{60 * s, 90 * s, 90 * s}, []time.Duration{75 * s, 90 * s}, 30 * s},
	} {
		delays, jitter := row.b.Delays(len(row.delays))
		if !slices.Equal(delays, row.delays) || jitter != row.jitter {
			t.Errorf("%s: delays %v with %s of jitter, want %v with %s", name, delays, jitter, row.delays, row.jitter)
		}
		for n, want := range row.longer {
			if d, _ := row.b.Delay(n, 0.5); d != want {
				t.Errorf("%s: retry %d waits %s with half its jitter, want %s", name, n, d, want)
			}
		}
	}
}

func TestStepsRepeatTheLast(t *testing.T) {
	delays := []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}
	b := redeliver.Steps(delays...)
	delays[0] = time.Hour // the caller may change its slice
	for n, want := range map[int]time.Duration{-1: time.Second, 0: time.Second, 1: 5 * time.Second, 2: 30 * time.Second, 3: 30 * time.Second, 1000: 30 * time.Second} {
		wantDelay(t, b, n, want)
		if d, _ := b.Delay(n, 0.99); d != want {
			t.Errorf("retry %d waits %s with jitter, want none", n, d)
		}
	}
	for _, n := range []int{0, 1, 64, 1000} {
		wantDelay(t, redeliver.Fixed(7*time.Second), n, 7*time.Second)
	}
	if d, ok := redeliver.Steps().Delay(0, 0); ok {
		t.Errorf("no steps, but a retry after %s", d)
	}
}

// Delays lists the delays that Delay returns, because the delay topics have them.
func TestListedDelaysAreTheDelays(t *testing.T) {
	for name, row := range map[string]struct {
		b      redeliver.DelayLister
		jitter time.Duration
	}{
		"Exponential":     {redeliver.Exponential(), time.Second},
		"Exponential 3 s": {redeliver.ExponentialBackoff{Base: 3 * time.Second}, 3 * time.Second},
		"a factor":        {redeliver.ExponentialBackoff{Factor: 1.7}, time.Second},
		"a share":         {redeliver.ExponentialBackoff{Jitter: 0.25, Max: 32 * time.Second}, 4 * time.Second},
		"Fixed":           {redeliver.Fixed(time.Minute), 0},
		"Steps":           {redeliver.Steps(1e9, 2e9), 0},
		"RocketMQ":        {redeliver.RocketMQ(), 0},
	} {
		delays, jitter := row.b.Delays(20)
		if len(delays) != 20 || jitter != row.jitter {
			t.Errorf("%s: %d delays with %s of jitter, want 20 with %s", name, len(delays), jitter, row.jitter)
		}
		for n, d := range delays {
			wantDelay(t, row.b, n, d)
		}
		for _, n := range []int{0, -1} {
			if d, _ := row.b.Delays(n); len(d) != 0 {
				t.Errorf("%s: %d delays for %d retries", name, len(d), n)
			}
		}
	}
	if d, _ := redeliver.Steps().Delays(3); len(d) != 0 {
		t.Errorf("no steps, but delays %v", d)
	}
}

func TestFromBackOffUsesTheNthDelay(t *testing.T) {
	const stop = -1 // in the table: no such retry
	plain := func() backoff.BackOff {
		return backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Second), backoff.WithMultiplier(3), backoff.WithMaxInterval(time.Minute), backoff.WithRandomizationFactor(0))
	}
	for name, row := range map[string]struct {
		fresh func() backoff.BackOff
		want  map[int]time.Duration
	}{
		"constant":    {func() backoff.BackOff { return backoff.NewConstantBackOff(5 * time.Second) }, map[int]time.Duration{0: 5 * time.Second, 1: 5 * time.Second, 1000: 5 * time.Second}},
		"zero":        {func() backoff.BackOff { return &backoff.ZeroBackOff{} }, map[int]time.Duration{0: 0, 9: 0}},
		"stop":        {func() backoff.BackOff { return &backoff.StopBackOff{} }, map[int]time.Duration{0: stop, 9: stop}},
		"exponential": {plain, map[int]time.Duration{0: time.Second, 1: 3 * time.Second, 2: 9 * time.Second, 3: 27 * time.Second, 4: time.Minute, 64: time.Minute, 1000: time.Minute}},
		"two retries": {func() backoff.BackOff { return backoff.WithMaxRetries(plain(), 2) }, map[int]time.Duration{0: time.Second, 1: 3 * time.Second, 2: stop, 3: stop, 1000: stop}},
	} {
		t.Run(name, func(t *testing.T) {
			b := redeliver.FromBackOff(row.fresh)
			for n, want := range row.want {
				d, ok := b.Delay(n, 0.5)
				if ok != (want != stop) || (ok && d != want) {
					t.Errorf("delayed retry %d waits %s, %t; want %s", n, d, ok, want)
				}
			}
		})
	}
	t.Run("Stop is exhausted", func(t *testing.T) {
		p := redeliver.Policy{MaxRetries: 9, Backoff: redeliver.FromBackOff(func() backoff.BackOff { return backoff.WithMaxRetries(plain(), 2) })}
		check(t, p.Decide(redeliver.State{Attempts: 1}, errBoom, now), retryLater(3*time.Second, 2))
		check(t, p.Decide(redeliver.State{Attempts: 2}, errBoom, now), deadLettered(redeliver.ReasonExhausted, 3))
	})
	t.Run("a randomised backoff stays within its bounds", func(t *testing.T) {
		b := redeliver.FromBackOff(func() backoff.BackOff { return backoff.NewExponentialBackOff() })
		for n := range 20 {
			if d, ok := b.Delay(n, 0); !ok || d < 250*time.Millisecond || d > 90*time.Second {
				t.Errorf("delayed retry %d waits %s, %t", n, d, ok)
			}
		}
	})
}

// A policy of cenkalti/backoff lists its delays if two of its BackOffs have the same ones.
func TestFromBackOffListsDelaysThatAreNotRandom(t *testing.T) {
	s := time.Second
	exponential := func(first time.Duration, share float64) func() backoff.BackOff {
		return func() backoff.BackOff {
			return backoff.NewExponentialBackOff(backoff.WithInitialInterval(first), backoff.WithMultiplier(2), backoff.WithRandomizationFactor(share), backoff.WithMaxElapsedTime(0))
		}
	}
	for name, row := range map[string]struct {
		fresh   func() backoff.BackOff
		retries int
		want    []time.Duration
		listed  bool
	}{
		"constant":           {func() backoff.BackOff { return backoff.NewConstantBackOff(10 * s) }, 3, []time.Duration{10 * s, 10 * s, 10 * s}, true},
		"exponential":        {exponential(4*s, 0), 3, []time.Duration{4 * s, 8 * s, 16 * s}, true},
		"zero":               {func() backoff.BackOff { return &backoff.ZeroBackOff{} }, 2, []time.Duration{0, 0}, true},
		"it ends earlier":    {func() backoff.BackOff { return backoff.WithMaxRetries(exponential(s, 0)(), 2) }, 9, []time.Duration{s, 2 * s}, true},
		"it has no retry":    {func() backoff.BackOff { return &backoff.StopBackOff{} }, 9, nil, true},
		"no retries":         {exponential(s, 0), redeliver.NoRetries, nil, true},
		"random":             {exponential(s, 0.5), 3, nil, false},
		"random, a retry":    {exponential(s, 0.001), 1, nil, false},
		"random, no retries": {exponential(s, 0.5), redeliver.NoRetries, nil, false},
		"nil":                {nil, 3, nil, false},
		"of nil":             {func() backoff.BackOff { return nil }, 3, nil, false},
		"a panic":            {func() backoff.BackOff { panic("no") }, 3, nil, false},
	} {
		p := redeliver.Policy{MaxRetries: row.retries, Backoff: redeliver.FromBackOff(row.fresh)}
		delays, jitter, listed := p.Delays()
		if !slices.Equal(delays, row.want) || jitter != 0 || listed != row.listed || !slices.Equal(p.LongestDelays(), row.want) {
			t.Errorf("%s: delays %v, jitter %s, listed %t; want %v, %t", name, delays, jitter, listed, row.want, row.listed)
		}
		for n, want := range delays {
			wantDelay(t, p.Backoff, n, want)
		}
	}
	blocking := redeliver.Policy{Order: redeliver.OrderBlocking, Backoff: redeliver.FromBackOff(func() backoff.BackOff { return backoff.NewConstantBackOff(s) })}
	if err := blocking.Validate("P"); err != nil {
		t.Errorf("delays that are listed may block: %v", err)
	}
}

// recorder records the draw of a message.
type recorder struct{ draw *float64 }

func (r recorder) Delay(_ int, draw float64) (time.Duration, bool) { *r.draw = draw; return 0, true }

func drawn(id string, attempts int) (draw float64) {
	redeliver.Policy{MaxRetries: limits.MaxAttempts, Backoff: recorder{&draw}}.Decide(redeliver.State{ID: id, Attempts: attempts}, errBoom, now)
	return draw
}

// Ids that differ only in their last digit, as offsets do, must not wait alike. Chi-square over 64 buckets has 63 degrees of freedom;
// 118 is its 99.997 % bound, and the result of a hash does not change from run to run.
func TestJitterIsSpreadEvenly(t *testing.T) {
	const buckets, n = 64, 32_000
	for name, at := range map[string]func(i int) float64{
		"by offset":  func(i int) float64 { return drawn(fmt.Sprintf("orders/0/%d", i), 0) },
		"by uuid":    func(i int) float64 { return drawn(fmt.Sprintf("6ba7b810-9dad-11d1-80b4-%012x", i), 0) },
		"by attempt": func(i int) float64 { return drawn("orders/0/7", i) },
	} {
		t.Run(name, func(t *testing.T) {
			var count [buckets]int
			for i := range n {
				d := at(i)
				if d < 0 || d >= 1 {
					t.Fatalf("drew %v, want from 0 to less than 1", d)
				}
				if d != at(i) {
					t.Fatalf("drew %v and %v for the same id and attempt", d, at(i))
				}
				count[int(d*buckets)]++
			}
			chi := 0.0
			for _, c := range count {
				diff := float64(c) - float64(n)/buckets
				chi += diff * diff / (float64(n) / buckets)
			}
			if chi > 118 {
				t.Errorf("chi-square is %.0f over %d buckets: %v", chi, buckets, count)
			}
		})
	}
}

// The pair is hashed, not the concatenated text.
func TestJitterDependsOnIDAndAttempt(t *testing.T) {
	if drawn("a1", 0) == drawn("a", 10) { // attempts 1 of "a1" and 11 of "a"
		t.Error("id a1, attempt 1 and id a, attempt 11 draw the same")
	}
}

package redeliver

import (
	"hash/fnv"
	"math"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Backoff says how long the delayed retries of a message wait. Implementations must be safe for concurrent use and should return
// the same result for the same arguments.
type Backoff interface {
	// Delay returns the wait before delayed retry n, counted from 0. draw is a random number in [0, 1) for the jitter, fixed for
	// each message and attempt. ok is false when there is no such retry: the message is exhausted.
	Delay(n int, draw float64) (d time.Duration, ok bool)
}

// DelayLister is a [Backoff] that can list its delays. The levels of a policy are derived from these delays. For other backoffs the
// levels are 1s 5s 30s 2m 10m 1h.
type DelayLister interface {
	Backoff
	// Delays returns the waits of the first n retries without jitter, or fewer if the backoff ends earlier, and the
	// maximum jitter of one wait.
	Delays(n int) (delays []time.Duration, jitter time.Duration)
}

// retryCounter is a Backoff with a default of MaxRetries.
type retryCounter interface{ defaultRetries() int }

// Defaults of [ExponentialBackoff].
const (
	defaultExponentialBase = time.Second
	defaultMaxExponential  = time.Minute
)

// ExponentialBackoff waits min(Max, Base * 2^n) before delayed retry n, counted from 0, plus a random jitter from [0, Base).
type ExponentialBackoff struct {
	// Base is the first delay and the width of the jitter. Default 1 s.
	Base time.Duration
	// Max bounds the delay before the jitter is added. Default 60 s, or Base if that is longer.
	Max time.Duration
}

// Exponential returns the [ExponentialBackoff] with its defaults: 1s 2s 4s ... 60s, each plus up to 1 s of jitter.
func Exponential() ExponentialBackoff { return ExponentialBackoff{} }

func (b ExponentialBackoff) bounds() (base, maxDelay time.Duration) {
	base, maxDelay = b.Base, b.Max
	if base == 0 {
		base = defaultExponentialBase
	}
	if maxDelay == 0 {
		maxDelay = max(defaultMaxExponential, base)
	}
	return base, maxDelay
}

func (b ExponentialBackoff) step(n int) time.Duration {
	base, maxDelay := b.bounds()
	for range n {
		if base > maxDelay/2 { // the next doubling passes the bound, or would overflow
			return maxDelay
		}
		base *= 2
	}
	return min(base, maxDelay)
}

// Delay implements [Backoff].
func (b ExponentialBackoff) Delay(n int, draw float64) (time.Duration, bool) {
	base, _ := b.bounds()
	d, jitter := b.step(n), time.Duration(draw*float64(base))
	if d > math.MaxInt64-jitter {
		return math.MaxInt64, true
	}
	return d + jitter, true
}

// Delays implements [DelayLister].
func (b ExponentialBackoff) Delays(n int) ([]time.Duration, time.Duration) {
	base, _ := b.bounds()
	delays := make([]time.Duration, max(0, n))
	for i := range delays {
		delays[i] = b.step(i)
	}
	return delays, base
}

func (b ExponentialBackoff) check(ps *Problems, field string) {
	base, maxDelay := b.bounds()
	checkDelay(ps, field+".Base", base)
	checkDelay(ps, field+".Max", maxDelay)
	if maxDelay < base {
		ps.Add(field+".Max", b.Max, "must not be shorter than Base, "+base.String())
	}
	if base > 0 && maxDelay <= MaxWait && maxDelay > MaxWait-base {
		ps.Add(field+".Max", maxDelay, "must with the jitter, up to Base, "+base.String()+", not be longer than "+MaxWait.String())
	}
}

// StepsBackoff waits the delays of a list, and then repeats the last one. See [Steps], [Fixed] and [RocketMQ].
type StepsBackoff struct {
	steps        []time.Duration
	retryDefault int // the default of MaxRetries; 0 for none
}

// Fixed returns a backoff that waits d before every retry.
func Fixed(d time.Duration) StepsBackoff { return StepsBackoff{steps: []time.Duration{d}} }

// Steps returns a backoff that waits the given delays, one after another, and then repeats the last one.
// Policy.MaxRetries, not their number, bounds the retries.
func Steps(delays ...time.Duration) StepsBackoff {
	return StepsBackoff{steps: append([]time.Duration(nil), delays...)}
}

// RocketMQ returns a backoff with the delays of Apache RocketMQ's consumers: 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h,
// then 2h. A policy with a MaxRetries of 0 gets RocketMQ's 16 retries, 4h46m in all. Source: RocketMQ's messageDelayLevel from level
// 3 on, and retryMaxTimes.
func RocketMQ() StepsBackoff {
	s, m := time.Second, time.Minute
	return StepsBackoff{retryDefault: 16, steps: []time.Duration{
		10 * s, 30 * s, m, 2 * m, 3 * m, 4 * m, 5 * m, 6 * m, 7 * m, 8 * m, 9 * m, 10 * m, 20 * m, 30 * m, 60 * m, 120 * m,
	}}
}

// RocketMQHTTP returns a backoff with the delays of RocketMQ's HTTP consumers: 5 minutes each. A policy with a MaxRetries of 0 gets
// 288 retries, a day in all. For ordered messages RocketMQ waits a minute: use [Fixed], 288 retries and [OrderThroughRetries]. [OrderBlocking]
// order waits at most 30 seconds.
func RocketMQHTTP() StepsBackoff {
	return StepsBackoff{retryDefault: 288, steps: []time.Duration{5 * time.Minute}}
}

// Delay implements [Backoff].
func (b StepsBackoff) Delay(n int, _ float64) (time.Duration, bool) {
	if len(b.steps) == 0 {
		return 0, false
	}
	return b.steps[min(max(0, n), len(b.steps)-1)], true
}

// Delays implements [DelayLister].
func (b StepsBackoff) Delays(n int) ([]time.Duration, time.Duration) {
	var delays []time.Duration
	for i := range n {
		if d, ok := b.Delay(i, 0); ok {
			delays = append(delays, d)
		}
	}
	return delays, 0
}

func (b StepsBackoff) defaultRetries() int { return b.retryDefault }

func (b StepsBackoff) check(ps *Problems, field string) {
	if len(b.steps) == 0 {
		ps.Add(field, "without steps", "must have at least one delay")
	}
	for _, d := range b.steps {
		checkDelay(ps, field, d)
	}
}

// checkDelay adds a problem if a delay cannot be a level.
func checkDelay(ps *Problems, field string, d time.Duration) {
	switch {
	case d < time.Millisecond:
		ps.Add(field, d, "must be at least 1ms; for retries without a wait use Immediate")
	case d > MaxWait:
		ps.Add(field, d, "must not be longer than "+MaxWait.String())
	}
}

// backOffAdapter adapts a policy of cenkalti/backoff/v4.
type backOffAdapter struct{ fresh func() backoff.BackOff }

// FromBackOff returns a backoff with the delays of a policy of cenkalti/backoff/v4. fresh must return a new BackOff at each call. The
// n-th delay is the result of its n-th NextBackOff; backoff.Stop means that the message is exhausted. If the policy is random,
// duplicates of a message may wait for different times. MaxElapsedTime counts from the call of fresh, so it bounds each
// delay alone: set it to 0 and use Policy.MaxAge.
func FromBackOff(fresh func() backoff.BackOff) Backoff { return backOffAdapter{fresh} }

// Delay implements [Backoff].
func (b backOffAdapter) Delay(n int, _ float64) (time.Duration, bool) {
	inner := b.fresh()
	for ; n > 0; n-- {
		if inner.NextBackOff() == backoff.Stop {
			return 0, false
		}
	}
	d := inner.NextBackOff()
	return max(0, d), d != backoff.Stop
}

func (b backOffAdapter) check(ps *Problems, field string) {
	if b.fresh == nil || b.fresh() == nil {
		ps.Add(field, "FromBackOff(nil)", "needs a function that returns a new BackOff")
	}
}

// draw returns the message's random number in [0, 1) for an attempt. It is a hash, so that every copy of the message
// has the same number.
func draw(id string, attempt int) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(strconv.AppendInt(nil, int64(attempt), 10))
	// FNV's low bits are good and its high bits are not: mix them (splitmix64).
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11) / math.Exp2(53)
}

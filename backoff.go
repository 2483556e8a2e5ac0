package redeliver

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
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
// levels are 1s 5s 30s 2m 10m 1h. [FromBackOff] lists its delays if they are not random.
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
	defaultFactor          = 2
	maxFactor              = 100
)

// ExponentialBackoff waits min(Max, Base * Factor^n) before delayed retry n, counted from 0, plus a random jitter: up to Base, or up
// to a share of the wait if Jitter is set.
type ExponentialBackoff struct {
	// Base is the first delay. It is also the width of the jitter if Jitter is 0. Default 1 s.
	Base time.Duration
	// Max bounds the delay: before the jitter is added if Jitter is 0, and otherwise with it. Default 60 s, or the first delay with
	// its jitter if that is longer.
	Max time.Duration
	// Factor is the ratio of a delay to the one before it, from 1 to 100. Default 2.
	Factor float64
	// Jitter is the width of the jitter as a share of the delay, from 0 to 1: with 0.2 a delay of 10 s becomes 10 to 12 s. A delay of
	// Max has none. Default 0: the jitter is up to Base, before every retry.
	Jitter float64
}

// Exponential returns the [ExponentialBackoff] with its defaults: 1s 2s 4s ... 60s, each plus up to 1 s of jitter.
func Exponential() ExponentialBackoff { return ExponentialBackoff{} }

func (b ExponentialBackoff) bounds() (base, maxDelay time.Duration) {
	base, maxDelay = b.Base, b.Max
	if base == 0 {
		base = defaultExponentialBase
	}
	if maxDelay == 0 {
		maxDelay = max(defaultMaxExponential, b.longestFirst(base))
	}
	return base, maxDelay
}

// longestFirst returns the first delay with all of its jitter, for which Max must have room.
func (b ExponentialBackoff) longestFirst(base time.Duration) time.Duration {
	return base + shareOf(base, b.Jitter, math.MaxInt64-max(0, base))
}

// shareOf returns a share of d, at most atMost.
func shareOf(d time.Duration, share float64, atMost time.Duration) time.Duration {
	if part := share * float64(d); part < float64(atMost) {
		return time.Duration(part)
	}
	return atMost
}

func (b ExponentialBackoff) step(n int) time.Duration {
	base, maxDelay := b.bounds()
	n = max(0, n)
	if b.Factor == 0 || b.Factor == defaultFactor { // exact, also where a float is not
		if n < 63 && base <= maxDelay>>n {
			return base << n
		}
		return maxDelay
	}
	if d := float64(base) * math.Pow(b.Factor, float64(n)); d < float64(maxDelay) {
		return time.Duration(d)
	}
	return maxDelay
}

// maxJitter returns the width of the jitter of a delay.
func (b ExponentialBackoff) maxJitter(d time.Duration) time.Duration {
	base, maxDelay := b.bounds()
	if b.Jitter == 0 {
		return min(base, math.MaxInt64-d)
	}
	return shareOf(d, b.Jitter, maxDelay-d)
}

// Delay implements [Backoff].
func (b ExponentialBackoff) Delay(n int, draw float64) (time.Duration, bool) {
	d := b.step(n)
	jitter := b.maxJitter(d)
	return d + shareOf(jitter, draw, jitter), true
}

// Delays implements [DelayLister].
func (b ExponentialBackoff) Delays(n int) (delays []time.Duration, jitter time.Duration) {
	delays, jitter = make([]time.Duration, max(0, n)), b.maxJitter(b.step(0))
	for i := range delays {
		delays[i] = b.step(i)
		jitter = max(jitter, b.maxJitter(delays[i]))
	}
	return delays, jitter
}

func (b ExponentialBackoff) check(ps *problems, field string) {
	base, maxDelay := b.bounds()
	if b.Factor != 0 && !(b.Factor >= 1 && b.Factor <= maxFactor) { // also for NaN
		ps.Add(field+".Factor", b.Factor, fmt.Sprintf("must be from 1 to %d, or 0 for the default, %d", maxFactor, defaultFactor))
		return
	}
	if !(b.Jitter >= 0 && b.Jitter <= 1) {
		ps.Add(field+".Jitter", b.Jitter, "must be a share of the delay, from 0 to 1")
		return
	}
	checkDelay(ps, field+".Base", base)
	checkDelay(ps, field+".Max", maxDelay)
	switch least := b.longestFirst(base); {
	case maxDelay < base:
		ps.Add(field+".Max", b.Max, "must not be shorter than Base, "+base.String())
	case maxDelay < least:
		ps.Add(field+".Max", b.Max, "must be at least "+least.String()+", because it bounds the delay with its jitter: Base and its share of Jitter")
	}
	if b.Jitter == 0 && base > 0 && maxDelay <= MaxWait && maxDelay > MaxWait-base {
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
// waits at most 30 seconds.
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

func (b StepsBackoff) check(ps *problems, field string) {
	if len(b.steps) == 0 {
		ps.Add(field, "without steps", "must have at least one delay")
	}
	for _, d := range b.steps {
		checkDelay(ps, field, d)
	}
}

// checkDelay adds a problem if a delay cannot be a level.
func checkDelay(ps *problems, field string, d time.Duration) {
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
// n-th delay is the result of its n-th NextBackOff; backoff.Stop means that the message is exhausted. MaxElapsedTime counts from
// the call of fresh, so it bounds each delay alone: set it to 0 and use Policy.MaxAge.
//
// The levels of the policy are its delays if two BackOffs have the same ones. With a RandomizationFactor they differ: then the levels
// are those of a backoff that is no [DelayLister], a wait may need several hops, and duplicates of a message may wait for
// different times.
func FromBackOff(fresh func() backoff.BackOff) Backoff { return backOffAdapter{fresh} }

// minProbed is the least number of delays that are compared: one may be equal by chance.
const minProbed = 8

// probe lists the first n delays, or fewer if the policy ends earlier. ok is false if the policy is random, or panics.
func (b backOffAdapter) probe(n int) (delays []time.Duration, ok bool) {
	defer func() {
		if recover() != nil { // as in each Delay, where Decide reports it
			delays, ok = nil, false
		}
	}()
	delays = b.list(max(n, minProbed))
	if !slices.Equal(delays, b.list(max(n, minProbed))) {
		return nil, false
	}
	return delays[:min(n, len(delays))], true
}

// list returns the first n delays of a new BackOff.
func (b backOffAdapter) list(n int) (delays []time.Duration) {
	inner := b.fresh()
	for range n {
		d := inner.NextBackOff()
		if d == backoff.Stop {
			break
		}
		delays = append(delays, max(0, d))
	}
	return delays
}

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

func (b backOffAdapter) check(ps *problems, field string) {
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

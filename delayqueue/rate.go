package delayqueue

import (
	"time"

	"github.com/redeliver/redeliver"
)

// rateSlots is in how many parts a rate's window moves on.
const rateSlots = 10

// rate counts what happened within a window, up to a tenth of it more or less.
type rate struct {
	slot time.Duration // the length of a part
	n    [rateSlots]int64
	sum  int64
	last int64 // the number of the latest part
}

func newRate(window time.Duration) rate { return rate{slot: window / rateSlots} }

// of is how much there was within the window before now.
func (r *rate) of(now time.Duration) int64 {
	at := int64(now / r.slot)
	for i := max(r.last+1, at-rateSlots+1, 0); i <= at; i++ {
		r.sum -= r.n[i%rateSlots]
		r.n[i%rateSlots] = 0
	}
	r.last = max(r.last, at)
	return r.sum
}

// since is how much there was since a time within the window, or a part of it before.
func (r *rate) since(from, now time.Duration) (n int64) {
	r.of(now)
	for i := max(int64(max(from, 0)/r.slot), r.last-rateSlots+1, 0); i <= r.last; i++ {
		n += r.n[i%rateSlots]
	}
	return n
}

// add counts one at now.
func (r *rate) add(now time.Duration) int64 {
	r.of(now)
	r.n[r.last%rateSlots]++
	r.sum++
	return r.sum
}

// budget is the judge of redeliver.RetryBudget.
type budget struct {
	share           float64
	floor           float64 // in a window
	firsts, retries rate
	spent           bool
}

func newBudget(b redeliver.RetryBudget) *budget {
	return &budget{
		share: b.Share, floor: float64(max(0, b.Floor)) * b.Window.Seconds(),
		firsts: newRate(b.Window), retries: newRate(b.Window),
	}
}

// used is how much of the budget is used: above 1 it is spent.
func (b *budget) used(now time.Duration) float64 {
	allowed := b.share*float64(b.firsts.of(now)) + b.floor
	return float64(b.retries.of(now)) / max(allowed, 1)
}

// retry counts a retry, and says how many times as long it is to wait.
func (b *budget) retry(now time.Duration) (factor int) {
	b.retries.add(now)
	switch used := b.used(now); {
	case used <= 1:
		return 1
	case used <= 2:
		return 2
	case used <= 4:
		return 4
	default:
		return 8
	}
}

// refillsAt is how much of a spent budget may be used at most for it to be back.
const refillsAt = 0.75

// turn tells whether the budget has just been spent, or is back.
func (b *budget) turn(now time.Duration) (changed bool) {
	used := b.used(now)
	was := b.spent
	b.spent = used > 1 || was && used > refillsAt
	return b.spent != was
}

// flood is the judge of redeliver.DeadLetterRate.
type flood struct {
	breaker
	most int64
	dead rate
}

func newFlood(r redeliver.DeadLetterRate) *flood {
	return &flood{breaker: breaker{first: r.Pause, most: r.Pause, need: r.Trickle}, most: int64(r.Most), dead: newRate(r.Window)}
}

// buried is told of a dead letter.
func (f *flood) buried(probe bool, now time.Duration) ruling {
	n := f.dead.add(now)
	switch {
	case f.phase == closed && n > f.most:
		f.trip(now)
		return begins
	case f.phase == closed:
		return asEver
	case probe:
		f.again(now, true)
		return lasts
	default:
		return lasts
	}
}

// succeeded is told of a success.
func (f *flood) succeeded(probe bool) ruling {
	if f.phase == closed || !probe {
		return asEver
	}
	if f.well() {
		f.dead = newRate(f.dead.slot * rateSlots)
		return ends
	}
	return lasts
}

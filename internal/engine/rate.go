package engine

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

// advance forgets what happened before the window that ends now.
func (r *rate) advance(now time.Duration) {
	at := int64(now / r.slot)
	for i := max(r.last+1, at-rateSlots+1, 0); i <= at; i++ {
		r.sum -= r.n[i%rateSlots]
		r.n[i%rateSlots] = 0
	}
	r.last = max(r.last, at)
}

// since is how much there was since a time within the window, or a part of it before.
func (r *rate) since(from, now time.Duration) (n int64) {
	r.advance(now)
	for i := max(int64(max(from, 0)/r.slot), r.last-rateSlots+1, 0); i <= r.last; i++ {
		n += r.n[i%rateSlots]
	}
	return n
}

// add counts one at now.
func (r *rate) add(now time.Duration) int64 {
	r.advance(now)
	r.n[r.last%rateSlots]++
	r.sum++
	return r.sum
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

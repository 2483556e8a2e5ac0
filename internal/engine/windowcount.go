package engine

import (
	"time"

	"github.com/redeliver/redeliver"
)

// windowParts is in how many parts a rate's window moves on.
const windowParts = 10

// windowCount counts what happened within a window, up to a tenth of it more or less.
type windowCount struct {
	part   time.Duration // the length of a part
	counts [windowParts]int64
	sum    int64
	last   int64 // the number of the latest part
}

func newWindowCount(window time.Duration) windowCount { return windowCount{part: window / windowParts} }

// advance forgets what happened before the window that ends now.
func (r *windowCount) advance(now time.Duration) {
	at := int64(now / r.part)
	for i := max(r.last+1, at-windowParts+1, 0); i <= at; i++ {
		r.sum -= r.counts[i%windowParts]
		r.counts[i%windowParts] = 0
	}
	r.last = max(r.last, at)
}

// since is how much there was since a time within the window, or a part of it before.
func (r *windowCount) since(from, now time.Duration) (n int64) {
	r.advance(now)
	for i := max(int64(max(from, 0)/r.part), r.last-windowParts+1, 0); i <= r.last; i++ {
		n += r.counts[i%windowParts]
	}
	return n
}

// add counts one at now.
func (r *windowCount) add(now time.Duration) int64 {
	r.advance(now)
	r.counts[r.last%windowParts]++
	r.sum++
	return r.sum
}

// flood is the judge of redeliver.DeadLetterRate.
type flood struct {
	breaker
	maxDeadLetters int64
	deadLetters    windowCount
}

func newFlood(r redeliver.DeadLetterRate) *flood {
	return &flood{breaker: breaker{firstPause: r.Pause, maxPause: r.Pause, needed: r.Trickle}, maxDeadLetters: int64(r.Most), deadLetters: newWindowCount(r.Window)}
}

// deadLettered is told of a dead letter.
func (f *flood) deadLettered(probe bool, now time.Duration) transition {
	n := f.deadLetters.add(now)
	switch {
	case f.state == breakerClosed && n > f.maxDeadLetters:
		f.trip(now)
		return tripped
	case f.state == breakerClosed:
		return unchanged
	case probe:
		f.again(now, true)
		return stillOpen
	default:
		return stillOpen
	}
}

// succeeded is told of a success.
func (f *flood) succeeded(probe bool) transition {
	if f.state == breakerClosed || !probe {
		return unchanged
	}
	if f.probeSucceeded() {
		f.deadLetters = newWindowCount(f.deadLetters.part * windowParts)
		return recovered
	}
	return stillOpen
}

package engine

import "time"

// breaker is what holds a subscription's intake back, and when it lets something
// through: closed, as long as nothing is wrong; paused, for a time; then half open,
// when one message at a time is let through as a probe. Enough successes in a row close
// it, and a failure pauses it again, for longer. The rules are sony/gobreaker's, which
// itself has no pause that grows, takes its own time, and waits for ever for a probe that
// says nothing: one whose message only moves on, or is lost.
type breaker struct {
	first, most time.Duration // pauses
	need        int           // successes

	phase phase
	pause time.Duration // the next one
	until time.Duration // paused until then
	good  int           // successes in a row
}

type phase uint8

const (
	closed phase = iota
	paused
	halfOpen
)

// trip pauses a breaker that was closed.
func (b *breaker) trip(now time.Duration) {
	b.phase, b.good, b.pause = paused, 0, b.first
	b.until = now + b.pause
}

// again pauses it after a probe that failed: one that speaks for all makes the next
// pause longer, and the successes before it count no more.
func (b *breaker) again(now time.Duration, forAll bool) {
	b.phase = paused
	if forAll {
		b.good, b.pause = 0, min(2*b.pause, b.most)
	}
	b.until = now + b.pause
}

// well counts a probe that succeeded, and tells whether that was enough.
func (b *breaker) well() (over bool) {
	b.good++
	if b.good < b.need {
		b.phase = halfOpen // at once: there is no reason to wait
		return false
	}
	b.phase = closed
	return true
}

// wake is half open when its pause is over.
func (b *breaker) wake(now time.Duration) {
	if b.phase == paused && now >= b.until {
		b.phase = halfOpen
	}
}

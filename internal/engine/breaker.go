package engine

import "time"

// breaker is what holds a subscription's intake back, and when it lets something
// through: closed, as long as nothing is wrong; paused, for a time; then half open,
// when one message at a time is let through as a probe. Enough successes in a row close
// it, and a failure pauses it again, for longer. The rules are sony/gobreaker's, which
// itself has no pause that grows, takes its own time, and waits for ever for a probe that
// says nothing: one whose message only moves on, or is lost.
type breaker struct {
	firstPause, maxPause time.Duration // pauses
	needed               int           // successes

	state     breakerState
	pause     time.Duration // the next one
	until     time.Duration // paused until then
	successes int           // successes in a row
}

type breakerState uint8

const (
	breakerClosed breakerState = iota
	breakerOpen
	breakerHalfOpen
)

// trip pauses a breaker that was closed.
func (b *breaker) trip(now time.Duration) {
	b.state, b.successes, b.pause = breakerOpen, 0, b.firstPause
	b.until = now + b.pause
}

// again pauses it after a probe that failed: one that speaks for all makes the next
// pause longer, and the successes before it count no more.
func (b *breaker) again(now time.Duration, forAll bool) {
	b.state = breakerOpen
	if forAll {
		b.successes, b.pause = 0, min(2*b.pause, b.maxPause)
	}
	b.until = now + b.pause
}

// probeSucceeded counts a probe that succeeded, and tells whether that was enough.
func (b *breaker) probeSucceeded() (over bool) {
	b.successes++
	if b.successes < b.needed {
		b.state = breakerHalfOpen // at once: there is no reason to wait
		return false
	}
	b.state = breakerClosed
	return true
}

// endPause is half open when its pause is over.
func (b *breaker) endPause(now time.Duration) {
	if b.state == breakerOpen && now >= b.until {
		b.state = breakerHalfOpen
	}
}

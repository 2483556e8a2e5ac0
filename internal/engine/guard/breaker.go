package guard

import "time"

// breaker is a circuit breaker that decides what a subscription begins. While it is open nothing begins. After the pause it is
// half open: one message at a time begins, as a probe. Enough successful probes in a row close it. A probe that fails opens it
// again, for longer.
//
// sony/gobreaker has the same rules, but its pause does not grow, it does not take the caller's clock, and it waits forever for
// a probe without a result: a message that was only moved, or was lost.
type breaker struct {
	firstPause, maxPause time.Duration
	needed               int // successes in a row that close it

	state     breakerState
	pause     time.Duration // the current one
	until     time.Duration // the end of the pause
	successes int           // in a row
}

type breakerState uint8

const (
	breakerClosed breakerState = iota
	breakerOpen
	breakerHalfOpen
)

// trip opens a breaker that was closed.
func (b *breaker) trip(now time.Duration) {
	b.state, b.successes, b.pause = breakerOpen, 0, b.firstPause
	b.until = now + b.pause
}

// probeFailed opens the breaker again. A failure that concerns all messages doubles the pause and resets the count of successes.
func (b *breaker) probeFailed(now time.Duration, concernsAll bool) {
	b.state = breakerOpen
	if concernsAll {
		b.successes, b.pause = 0, min(2*b.pause, b.maxPause)
	}
	b.until = now + b.pause
}

// probeSucceeded counts a probe that succeeded. It reports whether the breaker is closed now.
func (b *breaker) probeSucceeded() (isClosed bool) {
	b.successes++
	if b.successes < b.needed {
		b.state = breakerHalfOpen // the next probe may begin at once
		return false
	}
	b.state = breakerClosed
	return true
}

// endPause makes an open breaker half open when its pause is over.
func (b *breaker) endPause(now time.Duration) {
	if b.state == breakerOpen && now >= b.until {
		b.state = breakerHalfOpen
	}
}

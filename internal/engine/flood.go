package engine

import (
	"time"

	"github.com/redeliver/redeliver"
)

// flood detects the start and end of a flood of dead letters, see redeliver.DeadLetterRate.
type flood struct {
	breaker
	maxDeadLetters int64
	deadLetters    windowCount
}

func newFlood(r redeliver.DeadLetterRate) *flood {
	return &flood{breaker: breaker{firstPause: r.Pause, maxPause: r.Pause, needed: r.Probes}, maxDeadLetters: int64(r.Max), deadLetters: newWindowCount(r.Window)}
}

// deadLettered counts a dead letter.
func (f *flood) deadLettered(probe bool, now time.Duration) transition {
	n := f.deadLetters.add(now)
	switch {
	case f.state == breakerClosed && n > f.maxDeadLetters:
		f.trip(now)
		return tripped
	case f.state == breakerClosed:
		return unchanged
	case probe:
		f.probeFailed(now, true)
		return stillOpen
	default:
		return stillOpen
	}
}

// succeeded counts a success.
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

package guard

import (
	"errors"
	"time"

	"github.com/redeliver/redeliver"
)

// flood detects the start and end of a flood of dead letters, see redeliver.DeadLetterRate.
type flood struct {
	breaker
	changes        *Changes
	maxDeadLetters int64
	window         time.Duration
	deadLetters    windowCount
}

var errFlood = errors.New("more dead letters than the policy's DeadLetterRate")

func newFlood(r redeliver.DeadLetterRate, c *Changes) *flood {
	return &flood{
		breaker: breaker{firstPause: r.Pause, maxPause: r.Pause, needed: r.Probes}, changes: c,
		maxDeadLetters: int64(r.Max), window: r.Window, deadLetters: newWindowCount(r.Window),
	}
}

// deadLettered counts a dead letter.
func (f *flood) deadLettered(probe bool, now time.Duration) {
	n := f.deadLetters.add(now)
	switch {
	case f.state == breakerClosed && n > f.maxDeadLetters:
		f.trip(now)
		f.changes.Addf(redeliver.ChangeFlood, errFlood, "more than %d dead letters in %s; nothing new begins for %s", f.maxDeadLetters, f.window, f.pause)
	case f.state != breakerClosed && probe:
		f.probeFailed(now, true)
	}
}

// succeeded counts a success.
func (f *flood) succeeded(probe bool) {
	if f.state != breakerClosed && probe && f.probeSucceeded() {
		f.deadLetters = newWindowCount(f.window)
		f.changes.Addf(redeliver.ChangeFloodOver, nil, "%d messages in a row have succeeded; all run again", f.needed)
	}
}

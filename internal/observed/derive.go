// Package observed is what the exporters of metrics make of events and DLQs alike, so
// that a number means the same whichever of them tells it.
package observed

import (
	"errors"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// The default bounds of histograms, in seconds: those that OpenTelemetry advises for
// messaging.process.duration, and those of a retry's lateness.
var (
	Durations  = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	Latenesses = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 1800, 3600}
)

// ErrorType is what kind of failure err is, not which of a program's many: timeout,
// panic or error.
func ErrorType(err error) string {
	switch {
	case errors.Is(err, redeliver.ErrTimeout):
		return "timeout"
	case errors.Is(err, redeliver.ErrPanic):
		return "panic"
	default:
		return "error"
	}
}

// Lateness is how long after it was due a retry began. ok is false for what was not
// waited for: a first attempt, and one that was tried again at once.
func Lateness(e *redeliver.Attempted) (late time.Duration, ok bool) {
	if e.State.Attempts == 0 || e.State.Due.IsZero() {
		return 0, false
	}
	return max(0, e.Start.Sub(e.State.Due)), true
}

// Level is the level in the name of the topic or queue where a message waits: "hold"
// where that is the way back, "" where there is none, as on SQS.
func Level(where string) string {
	for range 2 { // behind a level there may be the number of a shard
		i := strings.LastIndexByte(where, '.')
		if i < 0 {
			return ""
		}
		name := where[i+1:]
		if _, ok := delayqueue.ParseLevel(name); ok {
			return name
		}
		if name == "retry" {
			return "hold"
		}
		where = where[:i]
	}
	return ""
}

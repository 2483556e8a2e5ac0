// Package observed turns events and DLQs into numbers for the exporters of metrics, so that a number means the same in
// every exporter.
package observed

import (
	"errors"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// The default bounds of histograms, in seconds. Durations are the advice of OpenTelemetry for
// messaging.process.duration. Latenesses are for the lateness of a retry.
var (
	Durations  = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	Latenesses = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 1800, 3600}
)

// ErrorType returns the kind of failure of err, independent of the program: timeout, panic or error.
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

// Lateness returns how long after its due time a retry began. ok is false for an attempt that did not wait: a first
// attempt, or an immediate retry.
func Lateness(e *redeliver.Attempted) (late time.Duration, ok bool) {
	if e.State.Attempts == 0 || e.State.Due.IsZero() {
		return 0, false
	}
	return max(0, e.Start.Sub(e.State.Due)), true
}

// Level returns the level in the name of the topic or queue where a message waits. It is "hold" for the retry topic or
// queue, and "" if there is none, as on SQS.
func Level(where string) string {
	for rest, more := where, true; more; {
		if _, rest, more = strings.Cut(rest, "."); rest == "retry" {
			return "hold"
		}
		if _, ok := delayqueue.ParseLevel(rest); ok { // 1.5s has a point, too
			return rest
		}
	}
	return ""
}

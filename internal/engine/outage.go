package engine

import (
	"time"

	"github.com/redeliver/redeliver"
)

// outage detects an outage as redeliver.Outage defines it, and its end.
//
// While the breaker is closed, failures count for their messages, and spread counts them by cause. The failure that makes a
// cause spread trips the breaker. From then on failures do not count, this one included, and messages are postponed.
//
// A probe that fails with the outage's error makes the next pause longer. Another error concerns this message alone, unless
// several probes fail with it. When one message fails every probe in a row, there is no outage.
//
// A message is poison when it has failed before while others succeeded. It does not count towards an outage while the successes
// of the others are in the window: when they have ended, only poison is left to run, and all of it fails.
type outage struct {
	breaker
	spread
	recentSuccesses, recentFailures windowCount
	probeErrors                     []probeError  // with which probes of this outage failed
	lastFailedProbe                 uint64        // the message whose probe failed last
	sameFailedProbe                 int           // how many probes in a row it has failed
	began                           time.Duration // this outage
	probes                          int           // of this outage
}

// probeError is an error with which probes failed.
type probeError struct {
	cause    uint64
	messages int
}

const (
	maxProbeErrors = 16
	// minProbeMessages is the number of messages whose probes must fail with an error before it counts as the outage's
	// error.
	minProbeMessages = 3
	// maxSameProbe is the number of probes in a row that one message may fail before the outage counts as unfounded.
	maxSameProbe = 5
)

func newOutage(o redeliver.Outage) *outage {
	return &outage{
		breaker: breaker{firstPause: o.Probe, maxPause: o.MaxPause, needed: o.Probes}, spread: newSpread(o),
		recentSuccesses: newWindowCount(o.Window), recentFailures: newWindowCount(o.Window),
	}
}

// transition is the effect of the end of an attempt on an outage or a flood.
type transition uint8

const (
	unchanged  transition = iota // closed
	tripped                      // it begins
	stillOpen                    // it continues
	relapsed                     // a probe failed after others had succeeded
	recovering                   // a probe has succeeded, the first since one failed
	recovered                    // it ends
	unfounded                    // it ends, because only one message fails
)

// failed counts a failure that the dependency may have caused.
func (o *outage) failed(f *failure, now time.Duration) transition {
	if o.state == breakerClosed {
		if f.failedBefore && o.othersSucceeded(f.sinceFirst, now) {
			return unchanged
		}
		o.recentFailures.add(now)
		if !o.addFailure(f.cause, f.key, now) {
			return unchanged
		}
		o.trip(now)
		o.probeErrors, o.lastFailedProbe, o.sameFailedProbe, o.began, o.probes = []probeError{{f.cause, minProbeMessages}}, 0, 0, now, 0
		return tripped
	}
	if !f.probe {
		return stillOpen
	}
	o.probes++
	same := o.sameFailedProbe > 0 && o.lastFailedProbe == f.id
	if !same {
		o.sameFailedProbe = 0
	}
	o.lastFailedProbe = f.id
	o.sameFailedProbe++
	if o.sameFailedProbe >= maxSameProbe {
		o.close()
		return unfounded
	}
	hadSuccesses := o.successes > 0
	o.probeFailed(now, o.countProbeError(f.cause, !same))
	if hadSuccesses && o.successes == 0 {
		return relapsed
	}
	return stillOpen
}

// othersSucceeded reports whether enough others have succeeded since a message failed first.
func (o *outage) othersSucceeded(since, now time.Duration) bool {
	from := now - min(max(since, 0), o.window)
	good, bad := o.recentSuccesses.since(from, now), o.recentFailures.since(from, now)
	return good > 0 && float64(good) >= (1-o.share)*float64(good+bad)
}

// countProbeError counts an error of a probe. It reports whether the error is the outage's.
func (o *outage) countProbeError(cause uint64, anotherMessage bool) bool {
	for i := range o.probeErrors {
		e := &o.probeErrors[i]
		if e.cause != cause {
			continue
		}
		if anotherMessage {
			e.messages++
		}
		return e.messages >= minProbeMessages
	}
	if len(o.probeErrors) < maxProbeErrors {
		o.probeErrors = append(o.probeErrors, probeError{cause, 1})
	}
	return false
}

// succeeded counts a success.
func (o *outage) succeeded(probe bool, now time.Duration) transition {
	switch {
	case o.state == breakerClosed:
		o.addSuccess()
		o.recentSuccesses.add(now)
		return unchanged
	case !probe: // it began before
		return stillOpen
	}
	o.probes++
	o.sameFailedProbe = 0
	first := o.successes == 0
	switch {
	case o.probeSucceeded():
		o.close()
		return recovered
	case first:
		return recovering
	default:
		return stillOpen
	}
}

func (o *outage) close() {
	o.state = breakerClosed
	o.reset()
}

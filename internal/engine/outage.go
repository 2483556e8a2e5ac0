package engine

import (
	"time"

	"github.com/redeliver/redeliver"
)

// outage detects the start and the end of an outage, as redeliver.Outage defines it.
//
// While the breaker is closed, a failure counts as an attempt of its message, and spread counts failures by their cause. When
// the failures of one cause are spread over enough keys, the breaker opens. From that failure on, failures do not count as
// attempts: the messages are postponed.
//
// A probe that fails with an error of the outage makes the next pause longer. Any other error concerns only the message of the
// probe, until the probes of several messages have failed with it. When the same message has failed several probes in a row,
// there is no outage.
//
// A message that has failed while others succeeded is poison. Its failures count towards an outage only when the successes of
// the others are no longer in the window. Otherwise poison alone would look like an outage: after the other messages have ended,
// only poison runs, and all of it fails.
type outage struct {
	breaker
	spread
	recentSuccesses, recentFailures windowCount
	probeErrors                     []probeError  // of the probes of this outage
	lastFailedProbe                 uint64        // the hash of the id of the message whose probe failed last
	sameFailedProbe                 int           // how many probes in a row that message has failed
	began                           time.Duration // when this outage began
	probes                          int           // how many probes of this outage have ended
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

// othersSucceeded reports whether enough others have succeeded since a message first failed. since is the
// time since then.
func (o *outage) othersSucceeded(since, now time.Duration) bool {
	from := now - min(max(since, 0), o.window)
	good, bad := o.recentSuccesses.since(from, now), o.recentFailures.since(from, now)
	return good > 0 && float64(good) >= (1-o.share)*float64(good+bad)
}

// countProbeError counts an error of a probe. It reports whether it is an error of the outage. anotherMessage reports whether the
// probe before was of another message.
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
	case !probe: // the message began before the outage
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

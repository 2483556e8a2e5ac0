package engine

import (
	"time"

	"github.com/redeliver/redeliver"
)

// outage is the judge of redeliver.Outage. A message goes through it like this: closed,
// its failure is counted in spread, and counts for the message. The failure that makes
// the causes spread trips the breaker: from then on, this one included, failures do not
// count. The messages that were in flight come back one after another, postponed. After
// the pause one message is let through. If it fails for what the others failed for, the
// next pause is longer. If it fails for something else, it may be poison, and says
// nothing of the others, unless several say the same; if it is the only one that fails
// any more, time after time, there is no outage. If it succeeds, so may the next.
//
// What fails again that failed while others succeeded is poison, as far as anybody can
// tell. When the others are done only that is left to run, and all of it fails: it says
// nothing, for as long as the others' successes are in the window.
type outage struct {
	breaker
	spread
	recentSuccesses, recentFailures windowCount
	probeErrors                     []probeError // what messages say while it lasts
	lastFailedProbe                 uint64       // the message of the probe that failed last
	sameFailedProbe                 int          // how often in a row
	began                           time.Duration
	probes                          int
}

// probeError is an error that probes have failed with.
type probeError struct {
	cause    uint64
	messages int
}

const (
	maxProbeErrors = 16
	// minProbeMessages is how many probes' messages must fail with an error for it to be the outage's.
	minProbeMessages = 3
	// maxSameProbe is how many probes in a row one message may fail before it is no outage.
	maxSameProbe = 5
)

func newOutage(o redeliver.Outage) *outage {
	return &outage{
		breaker: breaker{firstPause: o.Probe, maxPause: o.MaxPause, needed: o.Probes}, spread: newSpread(o),
		recentSuccesses: newWindowCount(o.Window), recentFailures: newWindowCount(o.Window),
	}
}

// transition is what an outage makes of an attempt's end.
type transition uint8

const (
	unchanged  transition = iota
	tripped               // an outage
	stillOpen             // it does
	relapsed              // it lasts, although a probe has succeeded before
	recovering            // a probe has succeeded, the first since one failed
	recovered             // the outage
	unfounded             // it ends, because it is none
)

// failed is told of a failure that may be the dependency's.
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
	faltered := o.successes > 0
	o.again(now, o.isCause(f.cause, !same))
	if faltered && o.successes == 0 {
		return relapsed
	}
	return stillOpen
}

// othersSucceeded tells whether others have succeeded since a message failed first.
func (o *outage) othersSucceeded(since, now time.Duration) bool {
	from := now - min(max(since, 0), o.window)
	well, bad := o.recentSuccesses.since(from, now), o.recentFailures.since(from, now)
	return well > 0 && float64(well) >= (1-o.share)*float64(well+bad)
}

// isCause counts a voice, and tells whether it is the outage's.
func (o *outage) isCause(what uint64, another bool) bool {
	for i := range o.probeErrors {
		v := &o.probeErrors[i]
		if v.cause != what {
			continue
		}
		if another {
			v.messages++
		}
		return v.messages >= minProbeMessages
	}
	if len(o.probeErrors) < maxProbeErrors {
		o.probeErrors = append(o.probeErrors, probeError{what, 1})
	}
	return false
}

// succeeded is told of a success.
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

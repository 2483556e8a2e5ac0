package guard

import (
	"time"

	"github.com/redeliver/redeliver"
)

// outage detects the start and the end of an outage, as redeliver.Outage defines it.
//
// While the breaker is closed, each failure counts as an attempt, and spread counts failures by their cause. When the
// failures of one cause are spread over enough keys, the breaker opens. From then on the messages that fail are postponed.
//
// A probe that fails with an error of the outage makes the next pause longer. Any other error concerns only the message of the
// probe, until the probes of several messages have failed with it. A failure also concerns only its message if the message has
// failed before, and a probe of another one has succeeded since: otherwise a few bad messages, between others that succeed, would
// keep the outage from ending. When fewer messages are left to probe with than begin an outage, and one of them has failed several
// probes, there is no outage: without that, two bad messages would take turns forever.
//
// A message that has failed while others succeeded is poison. Its failures count towards an outage only when the successes of
// the others are no longer in the window. Otherwise poison alone would look like an outage: after the other messages have ended,
// only poison runs, and all of it fails.
type outage struct {
	breaker
	spread
	reach
	isOfReach                       bool // this outage began because the handler's program is not there
	changes                         *Changes
	recentSuccesses, recentFailures windowCount
	probeErrors                     []probeError   // of the probes of this outage
	lastFailedProbe                 uint64         // the hash of the id of the message whose probe failed last
	failedProbes                    map[uint64]int // how many probes each of up to minKeys messages has failed since one last succeeded
	blocking                        bool           // only the heads of partitions can be probes
	began                           time.Duration  // when this outage began
	probes                          int            // how many probes of this outage have ended
	lastSuccess                     time.Duration  // when a probe of this outage last succeeded; negative if none has
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
	// maxSameProbe is the number of probes that one message may fail before the outage counts as unfounded.
	maxSameProbe = 5
)

func newOutage(o redeliver.Outage, blocking bool, c *Changes) *outage {
	return &outage{
		blocking: blocking,
		breaker:  breaker{firstPause: o.Probe, maxPause: o.MaxPause, needed: o.Probes}, spread: newSpread(o), changes: c,
		recentSuccesses: newWindowCount(o.Window), recentFailures: newWindowCount(o.Window),
		reach: newReach(),
	}
}

// failed counts a failure that the dependency may have caused.
func (o *outage) failed(f *Failure, now time.Duration) {
	switch {
	case o.state != breakerClosed:
		if f.Probe {
			o.countFailedProbe(f, now)
		}
		return
	case f.FailedBefore && o.othersSucceeded(f.SinceFirst, now):
		return
	}
	o.recentFailures.add(now)
	if o.addFailure(f.Cause, f.Key, now) {
		o.begin(f, now)
		o.changes.Addf(redeliver.ChangeOutage, f.Err, "messages of %d keys failed with the same error; nothing new begins, and the first probe follows in %s", o.minKeys, o.pause)
	}
}

// begin begins an outage.
func (o *outage) begin(f *Failure, now time.Duration) {
	o.trip(now)
	o.isOfReach = f.Unreachable
	o.probeErrors, o.lastFailedProbe, o.failedProbes, o.began, o.probes = []probeError{{f.Cause, minProbeMessages}}, 0, nil, now, 0
	o.lastSuccess = -1
}

// unreached counts a failure because the handler's program does not seem to be there.
func (o *outage) unreached(f *Failure, now time.Duration) {
	switch {
	case o.wasThereSince(f.Before):
		if o.state == breakerClosed {
			o.failed(f, now)
		}
	case o.state != breakerClosed:
		if f.Probe {
			o.countFailedProbe(f, now)
		}
	case o.addSign(f.Began, now):
		o.begin(f, now)
		o.changes.Addf(redeliver.ChangeOutage, f.Err, "the handler does not seem to be there, %d times one after another; nothing new begins, and the first probe follows in %s", minSigns, o.pause)
	}
}

// isToBlame reports whether a message may be the cause of its failure, although the handler's program does not seem to be there: the
// program was there since the message failed in that way before, or only this message is left to probe with. With OrderBlocking the
// heads of a few partitions may be left.
func (o *outage) isToBlame(f *Failure) bool {
	return o.wasThereSince(f.Before) || o.failedProbes[f.ID] >= maxSameProbe && (len(o.failedProbes) == 1 || o.blocking && len(o.failedProbes) < o.minKeys)
}

// countFailedProbe counts the failure of a probe.
func (o *outage) countFailedProbe(f *Failure, now time.Duration) {
	o.probes++
	same := len(o.failedProbes) > 0 && o.lastFailedProbe == f.ID
	o.lastFailedProbe = f.ID
	if o.failedProbes == nil {
		o.failedProbes = make(map[uint64]int)
	}
	if _, known := o.failedProbes[f.ID]; known || len(o.failedProbes) < o.minKeys { // more would not be few either
		o.failedProbes[f.ID]++
	}
	if n := len(o.failedProbes); o.failedProbes[f.ID] >= maxSameProbe && !f.Unreachable && n < o.minKeys {
		o.close()
		o.changes.Addf(redeliver.ChangeOutageOver, nil, "only %d messages are left to probe with, and one has failed %d times: attempts count again", n, maxSameProbe)
		return
	}
	hadSuccesses := o.successes > 0
	concernsAll := o.countProbeError(f.Cause, !same)
	if f.Before >= 0 && o.lastSuccess >= f.Before {
		concernsAll = false
	}
	o.probeFailed(now, concernsAll)
	if hadSuccesses && o.successes == 0 {
		o.changes.Addf(redeliver.ChangeOutage, f.Err, "a probe failed after others had succeeded; the next one follows in %s", o.pause)
	}
}

// othersSucceeded reports whether enough others have succeeded since a message first failed. since is the time since
// then.
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
func (o *outage) succeeded(probe bool, now time.Duration) {
	switch {
	case o.state == breakerClosed:
		o.addSuccess()
		o.recentSuccesses.add(now)
		return
	case !probe: // the message began before the outage
		return
	}
	o.probes++
	o.failedProbes, o.lastSuccess = nil, now
	first, took := o.successes == 0, (now - o.began).Round(time.Millisecond)
	switch {
	case o.probeSucceeded():
		o.close()
		o.changes.Addf(redeliver.ChangeOutageOver, nil, "it took %s and %d probes; all messages run again", took, o.probes)
	case first:
		o.changes.Addf(redeliver.ChangeProbing, nil, "a probe has succeeded after %s; %d more must succeed", took, o.needed-1)
	}
}

func (o *outage) close() {
	o.state = breakerClosed
	o.reset()
}

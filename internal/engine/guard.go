package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
)

// guard keeps messages from beginning in an outage, in a flood of dead letters, and in a pause that a handler asks for. Meanwhile
// only one message at a time begins, as a probe. The guard detects outages and floods itself, if the policy asks for that. It is a
// part of slots, whose lock guards it.
type guard struct {
	detects bool    // outages or floods; does not change
	outage  *outage // nil for none
	flood   *flood  // nil for none
	asked   breaker // for the pause of a handler

	probesRunning int
	lastProbe     time.Duration                   // when the last probe began
	events        []redeliver.SubscriptionChanged // that the sink has not got yet
}

// newGuard returns the guard of a policy, which has its defaults.
func newGuard(p *redeliver.Policy) guard {
	g := guard{detects: p.Outage.On() || p.DeadLetterRate.On()}
	if p.Outage.On() {
		g.outage = newOutage(p.Outage)
	}
	if p.DeadLetterRate.On() {
		g.flood = newFlood(p.DeadLetterRate)
	}
	return g
}

// probeTimeout is how long a running probe keeps the next one from beginning.
func (g *guard) probeTimeout() time.Duration {
	switch {
	case g.inOutage():
		return g.outage.maxPause
	case g.inFlood():
		return g.flood.pause
	default:
		return askedProbeTimeout
	}
}

// askedProbeTimeout is probeTimeout in a handler's pause, which may be short.
const askedProbeTimeout = 30 * time.Second

// onlyProbes reports whether only probes may begin.
func (g *guard) onlyProbes() bool {
	return g.asked.state != breakerClosed || g.inOutage() || g.inFlood()
}

// inFlood reports whether there are too many dead letters.
func (g *guard) inFlood() bool { return g.flood != nil && g.flood.state != breakerClosed }

// inOutage reports whether there is an outage.
func (g *guard) inOutage() bool { return g.outage != nil && g.outage.state != breakerClosed }

// mayProbe reports whether beginProbe would succeed.
func (g *guard) mayProbe(now time.Duration) bool {
	return (g.probesRunning == 0 || now-g.lastProbe >= g.probeTimeout()) &&
		(g.outage == nil || g.outage.state != breakerOpen || now >= g.outage.until) &&
		(g.flood == nil || g.flood.state != breakerOpen || now >= g.flood.until) &&
		(g.asked.state != breakerOpen || now >= g.asked.until)
}

// beginProbe reports whether a probe may begin now, and counts it if so.
func (g *guard) beginProbe(now time.Duration) bool {
	if g.probesRunning > 0 && now-g.lastProbe < g.probeTimeout() {
		return false
	}
	if g.outage != nil {
		g.outage.endPause(now)
	}
	if g.flood != nil {
		g.flood.endPause(now)
	}
	g.asked.endPause(now)
	if g.outage != nil && g.outage.state == breakerOpen || g.flood != nil && g.flood.state == breakerOpen || g.asked.state == breakerOpen {
		return false
	}
	g.probesRunning++
	g.lastProbe = now
	return true
}

// nextChange returns the time at which another probe may begin without any other event; 0 means never.
func (g *guard) nextChange() (at time.Duration) {
	if g.onlyProbes() && g.probesRunning > 0 {
		at = g.lastProbe + g.probeTimeout()
	}
	if g.inOutage() && g.outage.state == breakerOpen {
		at = max(at, g.outage.until)
	}
	if g.flood != nil && g.flood.state == breakerOpen {
		at = max(at, g.flood.until)
	}
	if g.asked.state == breakerOpen {
		at = max(at, g.asked.until)
	}
	return at
}

// pause keeps messages from beginning for d, because a handler asks for it.
func (g *guard) pause(d time.Duration, err error, now time.Duration) {
	if g.asked.state == breakerClosed {
		g.reportf(redeliver.ChangePaused, err, "a handler asks for a pause of %s; then one message at a time runs as a probe", d)
		g.asked.until = 0
	}
	g.asked.state, g.asked.until = breakerOpen, max(g.asked.until, now+d)
}

// probeEnded ends the pause of a handler after a probe that has not asked for another pause.
func (g *guard) probeEnded() {
	if g.asked.state == breakerHalfOpen {
		g.asked.state = breakerClosed
		g.reportf(redeliver.ChangeResumed, nil, "a probe has not asked for another pause; all messages run again")
	}
}

// reportf adds an event for the sink.
func (g *guard) reportf(change redeliver.Change, err error, format string, args ...any) {
	g.events = append(g.events, redeliver.SubscriptionChanged{Change: change, Detail: fmt.Sprintf(format, args...), Err: err})
}

// failure describes a failed attempt to the guard.
type failure struct {
	err            error
	cause, key, id uint64        // hashes of the error, and of the message's key and id
	probe          bool          // the message began as a probe
	failedBefore   bool          // an earlier failure of the message counted
	sinceFirst     time.Duration // the time since the first failure of the message
	dependency     bool          // the dependency may have caused it
	sparable       bool          // see isSparable
}

// judge counts a failed attempt. It reports whether the message is to be postponed.
func (g *guard) judge(f *failure, now time.Duration) (postpone bool) {
	if g.outage == nil || !f.dependency {
		return false
	}
	o := g.outage
	switch o.failed(f, now) {
	case tripped:
		g.reportf(redeliver.ChangeOutage, f.err, "messages of %d keys failed alike; nothing new begins, and the first probe follows in %s", o.minKeys, o.pause)
	case relapsed:
		g.reportf(redeliver.ChangeOutage, f.err, "a probe failed after others had succeeded; the next one follows in %s", o.pause)
	case unfounded:
		g.reportf(redeliver.ChangeOutageOver, nil, "only one message failed any more, %d times in a row: its attempts count again", maxSameProbe)
	default:
	}
	return g.inOutage() && f.sparable
}

var errFlood = errors.New("more dead letters than the policy's DeadLetterRate")

// succeeded counts a message that succeeded.
func (g *guard) succeeded(probe bool, now time.Duration) {
	if g.outage != nil {
		o := g.outage
		switch o.succeeded(probe, now) {
		case recovering:
			g.reportf(redeliver.ChangeProbing, nil, "a probe has succeeded after %s; %d more are to", (now - o.began).Round(time.Millisecond), o.needed-1)
		case recovered:
			g.reportf(redeliver.ChangeOutageOver, nil, "it took %s and %d probes; all messages run again", (now - o.began).Round(time.Millisecond), o.probes)
		default:
		}
	}
	if g.flood != nil && g.flood.succeeded(probe) == recovered {
		g.reportf(redeliver.ChangeFloodOver, nil, "%d messages in a row have succeeded; all run again", g.flood.needed)
	}
}

// deadLettered counts a dead letter.
func (g *guard) deadLettered(probe bool, now time.Duration) {
	if f := g.flood; f != nil && f.deadLettered(probe, now) == tripped {
		g.reportf(redeliver.ChangeFlood, errFlood, "more than %d dead letters in %s; nothing new begins for %s", f.maxDeadLetters, f.deadLetters.part*windowParts, f.pause)
	}
}

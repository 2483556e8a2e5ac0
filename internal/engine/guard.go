package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
)

// guard tells an outage from messages that fail for themselves, and bounds dead letters, as the policy asks. It is a part of the
// slots, whose lock guards it: while it is held, the slots let only one probe at a time begin.
type guard struct {
	outage *outage // nil where it is not asked for, and so is flood
	flood  *flood

	probesRunning int // probes that are under way
	lastProbe     time.Duration
	events        []redeliver.SubscriptionChanged
}

// newGuard makes the guard of a policy with its defaults; nil where there is none.
func newGuard(p *redeliver.Policy) *guard {
	if !p.Guarded() {
		return nil
	}
	g := &guard{}
	if p.Outage.On() {
		g.outage = newOutage(p.Outage)
	}
	if p.DeadLetterRate.On() {
		g.flood = newFlood(p.DeadLetterRate)
	}
	return g
}

// probeTimeout is how long a probe that does not end is waited for before another.
func (g *guard) probeTimeout() time.Duration {
	switch {
	case g.inOutage():
		return g.outage.maxPause
	case g.flood != nil:
		return g.flood.pause
	default:
		return 0
	}
}

// held tells whether nothing may begin but probes.
func (g *guard) held() bool { return g.inOutage() || g.flood != nil && g.flood.state != breakerClosed }

// inOutage tells whether there is an outage.
func (g *guard) inOutage() bool { return g.outage != nil && g.outage.state != breakerClosed }

// mayProbe reports whether lend may succeed.
func (g *guard) mayProbe(now time.Duration) bool {
	return (g.probesRunning == 0 || now-g.lastProbe >= g.probeTimeout()) &&
		(g.outage == nil || g.outage.state != breakerOpen || now >= g.outage.until) &&
		(g.flood == nil || g.flood.state != breakerOpen || now >= g.flood.until)
}

// beginProbe tells whether a probe may begin now, which is one then.
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
	if g.outage != nil && g.outage.state == breakerOpen || g.flood != nil && g.flood.state == breakerOpen {
		return false
	}
	g.probesRunning++
	g.lastProbe = now
	return true
}

// nextChange is when something may change by itself; 0 for never.
func (g *guard) nextChange() (at time.Duration) {
	if g.held() && g.probesRunning > 0 {
		at = g.lastProbe + g.probeTimeout()
	}
	if g.inOutage() && g.outage.state == breakerOpen {
		at = max(at, g.outage.until)
	}
	if g.flood != nil && g.flood.state == breakerOpen {
		at = max(at, g.flood.until)
	}
	return at
}

// reportf notes what the sink is to be told.
func (g *guard) reportf(change redeliver.Change, err error, format string, args ...any) {
	g.events = append(g.events, redeliver.SubscriptionChanged{Change: change, Detail: fmt.Sprintf(format, args...), Err: err})
}

// failure is what the judges are shown of an attempt that failed.
type failure struct {
	err            error
	cause, key, id uint64
	probe          bool          // it was let through in an outage or a flood
	failedBefore   bool          // it failed before, and that counted
	sinceFirst     time.Duration // it failed first
	dependency     bool          // it may be the dependency's fault
	sparable       bool          // see redeliver.Decision
}

// judge is told of every attempt that failed, and reports whether its message is to be
// postponed.
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

// succeeded is told of every message that succeeded.
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

// deadLettered is told of every dead letter.
func (g *guard) deadLettered(probe bool, now time.Duration) {
	if f := g.flood; f != nil && f.deadLettered(probe, now) == tripped {
		g.reportf(redeliver.ChangeFlood, errFlood, "more than %d dead letters in %s; nothing new begins for %s", f.maxDeadLetters, f.deadLetters.part*windowParts, f.pause)
	}
}

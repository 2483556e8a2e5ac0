// Package guard keeps the messages of a subscription from beginning in an outage, in a flood of dead letters, and in a
// pause that a handler asks for. It detects outages and floods itself.
package guard

import (
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// Guard decides whether messages may begin. In an outage, in a flood and in a pause only one message at a time begins, as a probe.
// Its caller has a lock, passes the time, counted from any fixed time, and must not copy a Guard after Init.
type Guard struct {
	// Detects reports whether the policy asks for the detection of outages or floods. It does not change after Init.
	Detects bool
	// Changes are the events that the sink has not got yet.
	Changes Changes
	// Probes is the number of probes that run.
	Probes int

	outage       *outage // nil for none
	flood        *flood  // nil for none
	handlerPause breaker // of the function Pause
	breakers     []*breaker
	lastProbe    time.Duration // when the last probe began
}

// Changes are events, without the names of their subscription.
type Changes []redeliver.SubscriptionChanged

// Addf adds an event.
func (c *Changes) Addf(change redeliver.Change, err error, format string, args ...any) {
	*c = append(*c, redeliver.SubscriptionChanged{Change: change, Detail: fmt.Sprintf(format, args...), Err: err})
}

// Init prepares the guard for a policy.
func (g *Guard) Init(policy *redeliver.Policy) {
	p := policy.WithDefaults()
	if !p.Outage.Off {
		g.outage = newOutage(p.Outage, p.Order == redeliver.OrderBlocking, &g.Changes)
		g.breakers = append(g.breakers, &g.outage.breaker)
	}
	if p.DeadLetterRate != (redeliver.DeadLetterRate{}) {
		g.flood = newFlood(p.DeadLetterRate, &g.Changes)
		g.breakers = append(g.breakers, &g.flood.breaker)
	}
	g.Detects = len(g.breakers) > 0
	g.handlerPause.maxPause = handlerPauseProbeTimeout
	g.breakers = append(g.breakers, &g.handlerPause)
}

// handlerPauseProbeTimeout is probeTimeout in a handler's pause, which may be short.
const handlerPauseProbeTimeout = 30 * time.Second

// probeTimeout is how long a running probe keeps the next one from beginning.
func (g *Guard) probeTimeout() time.Duration {
	for _, b := range g.breakers {
		if b.state != breakerClosed {
			return b.maxPause
		}
	}
	return 0
}

// OnlyProbes reports whether only probes may begin.
func (g *Guard) OnlyProbes() bool {
	for _, b := range g.breakers {
		if b.state != breakerClosed {
			return true
		}
	}
	return false
}

// MayProbe reports whether a probe may begin now.
func (g *Guard) MayProbe(now time.Duration) bool {
	return (g.Probes == 0 || now-g.lastProbe >= g.probeTimeout()) &&
		!slices.ContainsFunc(g.breakers, func(b *breaker) bool { return b.state == breakerOpen && now < b.until })
}

// BeginProbe counts a probe that begins now, because MayProbe permits it.
func (g *Guard) BeginProbe(now time.Duration) {
	for _, b := range g.breakers {
		b.endPause(now)
	}
	g.Probes++
	g.lastProbe = now
}

// NextChange returns the time at which another probe may begin without any other event; 0 means never.
func (g *Guard) NextChange() (at time.Duration) {
	if g.OnlyProbes() && g.Probes > 0 {
		at = g.lastProbe + g.probeTimeout()
	}
	for _, b := range g.breakers {
		if b.state == breakerOpen {
			at = max(at, b.until)
		}
	}
	return at
}

// Pause keeps messages from beginning for d, because a handler asks for it.
func (g *Guard) Pause(d time.Duration, err error, now time.Duration) {
	if g.handlerPause.state == breakerClosed {
		g.Changes.Addf(redeliver.ChangePaused, err, "a handler asks for a pause of %s; then one message at a time runs as a probe", d)
		g.handlerPause.until = 0
	}
	g.handlerPause.state, g.handlerPause.until = breakerOpen, max(g.handlerPause.until, now+d)
}

// EndProbe counts a probe that has ended. conclusive reports whether its handler ran to an end. A conclusive probe that has
// not asked for another pause ends the pause of a handler.
func (g *Guard) EndProbe(conclusive bool) {
	g.Probes--
	if conclusive && g.handlerPause.state == breakerHalfOpen {
		g.handlerPause.state = breakerClosed
		g.Changes.Addf(redeliver.ChangeResumed, nil, "a probe has not asked for another pause; all messages run again")
	}
}

// Failure describes a failed attempt that a dependency of the handler may have caused.
type Failure struct {
	Err            error
	Cause, Key, ID uint64        // hashes of the error, and of the message's key and id
	Probe          bool          // the message began as a probe
	FailedBefore   bool          // an earlier failure of the message counted
	SinceFirst     time.Duration // the time since the first failure of the message
	Postponable    bool          // an outage would postpone the message instead
	// Before is when the message failed before with this cause, or was postponed; negative if it was not.
	Before time.Duration
	// Unreachable says that the handler's program does not seem to be there. Began is when the attempt began.
	Unreachable bool
	Began       time.Duration
}

// CountFailure counts a failed attempt. It reports whether the message is to be postponed.
func (g *Guard) CountFailure(f *Failure, now time.Duration) (postpone bool) {
	if g.outage == nil {
		return false
	}
	if f.Unreachable { // the count concerns the next failure
		postpone = g.Postpones(f)
		g.outage.unreached(f, now)
		return postpone
	}
	g.outage.failed(f, now)
	return g.Postpones(f)
}

// Postpones reports whether a message that has failed is to be postponed.
func (g *Guard) Postpones(f *Failure) bool {
	if g.outage == nil || !f.Postponable {
		return false
	}
	if f.Unreachable {
		return !g.outage.isToBlame(f)
	}
	return g.inOutage()
}

func (g *Guard) inOutage() bool { return g.outage != nil && g.outage.state != breakerClosed }

// BlamedMessage counts a message that its handler has rejected, or whose failure it blames on the message. began is when the attempt
// began, or negative if that is not known.
func (g *Guard) BlamedMessage(probe bool, began, now time.Duration) {
	if g.outage != nil {
		g.outage.answered(began)
		if probe && g.outage.isOfReach {
			g.outage.succeeded(true, now)
		}
	}
}

// Succeeded counts a message that succeeded. For began, see BlamedMessage.
func (g *Guard) Succeeded(probe bool, began, now time.Duration) {
	if g.outage != nil {
		g.outage.answered(began)
		g.outage.succeeded(probe, now)
	}
	if g.flood != nil {
		g.flood.succeeded(probe)
	}
}

// DeadLettered counts a dead letter.
func (g *Guard) DeadLettered(probe bool, now time.Duration) {
	if g.flood != nil {
		g.flood.deadLettered(probe, now)
	}
}

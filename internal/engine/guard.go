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

	out  int // probes that are under way
	lent time.Duration
	news []redeliver.SubscriptionChanged
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

// patience is how long a probe that does not end is waited for before another.
func (g *guard) patience() time.Duration {
	switch {
	case g.isOut():
		return g.outage.most
	case g.flood != nil:
		return g.flood.pause
	default:
		return 0
	}
}

// held tells whether nothing may begin but probes.
func (g *guard) held() bool { return g.isOut() || g.flood != nil && g.flood.phase != closed }

// isOut tells whether there is an outage.
func (g *guard) isOut() bool { return g.outage != nil && g.outage.phase != closed }

// mayLend reports whether lend may succeed.
func (g *guard) mayLend(now time.Duration) bool {
	return (g.out == 0 || now-g.lent >= g.patience()) &&
		(g.outage == nil || g.outage.phase != paused || now >= g.outage.until) &&
		(g.flood == nil || g.flood.phase != paused || now >= g.flood.until)
}

// lend tells whether a probe may begin now, which is one then.
func (g *guard) lend(now time.Duration) bool {
	if g.out > 0 && now-g.lent < g.patience() {
		return false
	}
	if g.outage != nil {
		g.outage.wake(now)
	}
	if g.flood != nil {
		g.flood.wake(now)
	}
	if g.outage != nil && g.outage.phase == paused || g.flood != nil && g.flood.phase == paused {
		return false
	}
	g.out++
	g.lent = now
	return true
}

// next is when something may change by itself; 0 for never.
func (g *guard) next() (at time.Duration) {
	if g.held() && g.out > 0 {
		at = g.lent + g.patience()
	}
	if g.isOut() && g.outage.phase == paused {
		at = max(at, g.outage.until)
	}
	if g.flood != nil && g.flood.phase == paused {
		at = max(at, g.flood.until)
	}
	return at
}

// tellf notes what the sink is to be told.
func (g *guard) tellf(change redeliver.Change, err error, format string, args ...any) {
	g.news = append(g.news, redeliver.SubscriptionChanged{Change: change, Detail: fmt.Sprintf(format, args...), Err: err})
}

// failure is what the judges are shown of an attempt that failed.
type failure struct {
	err            error
	print, key, id uint64
	probe          bool          // it was let through in an outage or a flood
	counted        bool          // it failed before, and that counted
	since          time.Duration // it failed first
	ill            bool          // it may be the dependency's fault
	sparable       bool          // see redeliver.Decision
}

// judge is told of every attempt that failed, and reports whether its message is to be
// postponed.
func (g *guard) judge(f *failure, now time.Duration) (postpone bool) {
	if g.outage == nil || !f.ill {
		return false
	}
	o := g.outage
	switch o.failed(f, now) {
	case begins:
		g.tellf(redeliver.ChangeOutage, f.err, "messages of %d keys failed alike; nothing new begins, and the first probe follows in %s", o.minKeys, o.pause)
	case falters:
		g.tellf(redeliver.ChangeOutage, f.err, "a probe failed after others had succeeded; the next one follows in %s", o.pause)
	case isSolo:
		g.tellf(redeliver.ChangeOutageOver, nil, "only one message failed any more, %d times in a row: its attempts count again", soloMost)
	default:
	}
	return g.isOut() && f.sparable
}

var errFlood = errors.New("more dead letters than the policy's DeadLetterRate")

// succeeded is told of every message that succeeded.
func (g *guard) succeeded(probe bool, now time.Duration) {
	if g.outage != nil {
		o := g.outage
		switch o.succeeded(probe, now) {
		case mends:
			g.tellf(redeliver.ChangeProbing, nil, "a probe has succeeded after %s; %d more are to", (now - o.began).Round(time.Millisecond), o.need-1)
		case ends:
			g.tellf(redeliver.ChangeOutageOver, nil, "it took %s and %d probes; all messages run again", (now - o.began).Round(time.Millisecond), o.probes)
		default:
		}
	}
	if g.flood != nil && g.flood.succeeded(probe) == ends {
		g.tellf(redeliver.ChangeFloodOver, nil, "%d messages in a row have succeeded; all run again", g.flood.need)
	}
}

// buried is told of every dead letter.
func (g *guard) buried(probe bool, now time.Duration) {
	if f := g.flood; f != nil && f.buried(probe, now) == begins {
		g.tellf(redeliver.ChangeFlood, errFlood, "more than %d dead letters in %s; nothing new begins for %s", f.most, f.dead.slot*rateSlots, f.pause)
	}
}

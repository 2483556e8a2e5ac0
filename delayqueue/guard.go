package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/redeliver/redeliver"
)

// guard is what a subscription's policy asks for to tell an outage from poison, and to
// bound retries and dead letters. It is a part of the Throttle, which holds messages
// back for it, one like another, however they come: who asks for room waits for it, and
// for a probe there is room for one. The Throttle's lock guards it.
type guard struct {
	outage *outage // nil where it is not asked for, and so are the others
	flood  *flood
	budget *budget
	poison *poison

	born time.Time // time counts from here
	out  int       // probes that are under way
	lent time.Duration
	news []redeliver.SubscriptionChanged
}

// newGuard makes the guard of a policy with its defaults; nil where there is none.
func newGuard(p *redeliver.Policy) *guard {
	if !p.Guarded() {
		return nil
	}
	g := &guard{born: time.Now()}
	if p.Outage.On() {
		g.outage = newOutage(p.Outage)
	}
	if p.DeadLetterRate.On() {
		g.flood = newFlood(p.DeadLetterRate)
	}
	if p.RetryBudget.On() {
		g.budget = newBudget(p.RetryBudget)
	}
	if p.Poison.On() {
		g.poison = newPoison(p.Poison)
	}
	return g
}

func (g *guard) now() time.Duration { return time.Since(g.born) }

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
func (g *guard) next(now time.Duration) (at time.Duration) {
	if g.held() && g.out > 0 {
		at = g.lent + g.patience()
	}
	if g.isOut() && g.outage.phase == paused {
		at = max(at, g.outage.until)
	}
	if g.flood != nil && g.flood.phase == paused {
		at = max(at, g.flood.until)
	}
	if at == 0 && g.budget != nil && g.budget.spent {
		at = now.Truncate(g.budget.firsts.slot) + g.budget.firsts.slot
	}
	return at
}

// tellf notes what the sink is to be told.
func (g *guard) tellf(change string, err error, format string, args ...any) {
	g.news = append(g.news, redeliver.SubscriptionChanged{Change: change, Detail: fmt.Sprintf(format, args...), Err: err})
}

// failure is what the judges are shown of an attempt that failed.
type failure struct {
	err            error
	print, key, id uint64
	attempts       int           // this one included
	probe          bool          // it was let through in an outage or a flood
	first          bool          // attempt of the message
	again          bool          // it failed before, for the same
	counted        bool          // it failed before, and that counted
	since          time.Duration // it failed first
	ill            bool          // it may be the dependency's fault
	sparable       bool          // see redeliver.Decision
	retries        bool          // it is to run again, and counts
}

// verdict is what they say.
type verdict struct {
	postpone bool
	factor   int    // of a delay
	poison   string // why the message is; "" for none
}

// judge is told of every attempt that failed.
func (g *guard) judge(f *failure, now time.Duration) (v verdict) {
	if g.budget != nil && f.first {
		g.budget.firsts.add(now)
	}
	if !f.ill {
		return v
	}
	if g.outage != nil {
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
		if g.isOut() && f.sparable {
			return verdict{postpone: true}
		}
	}
	if g.poison != nil {
		if why := g.poison.failed(f, now); why != "" {
			return verdict{poison: why}
		}
	}
	if g.budget != nil && f.retries {
		v.factor = g.budget.retry(now)
		g.account(now)
	}
	return v
}

// account tells when the budget has been spent, or is back.
func (g *guard) account(now time.Duration) {
	b := g.budget
	if b == nil || !b.turn(now) {
		return
	}
	retries, firsts := b.retries.of(now), b.firsts.of(now)
	if b.spent {
		g.tellf(redeliver.ChangeBudgetSpent, errBudget, "%d retries beside %d first attempts in %s; what fails waits up to 8 times as long", retries, firsts, b.firsts.slot*rateSlots)
	} else {
		g.tellf(redeliver.ChangeBudgetBack, nil, "%d retries beside %d first attempts in %s; delays are as planned", retries, firsts, b.firsts.slot*rateSlots)
	}
}

var (
	errBudget = errors.New("more retries than the policy's RetryBudget")
	errFlood  = errors.New("more dead letters than the policy's DeadLetterRate")
)

// succeeded is told of every message that succeeded.
func (g *guard) succeeded(probe, first bool, now time.Duration) {
	if g.poison != nil {
		g.poison.well.add(now)
	}
	if g.budget != nil && first {
		g.budget.firsts.add(now)
		if g.budget.spent {
			g.account(now)
		}
	}
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

// poison is the judge of redeliver.Poison.
type poison struct {
	rule redeliver.Poison
	spread
	well rate
}

func newPoison(p redeliver.Poison) *poison {
	// Of two keys that failed for one cause neither is alone.
	return &poison{rule: p, spread: spread{minKeys: 2, share: 2, window: p.Window}, well: newRate(p.Window)}
}

// failed returns why a message that failed is poison, or "".
func (p *poison) failed(f *failure, now time.Duration) string {
	p.fail(f.print, f.key, now)
	if !f.retries || !f.again || f.attempts < p.rule.Attempts || !lasting(f.err) || !p.alone(f.print, f.key, now-p.window) {
		return ""
	}
	well := p.well.of(now)
	if well < int64(p.rule.Others) {
		return ""
	}
	return fmt.Sprintf("poison: it alone failed %d times for the same, while %d attempts succeeded within %s", f.attempts, well, p.window)
}

// lasting tells whether an error looks as if it would be there in the next attempt, too.
func lasting(err error) (yes bool) {
	defer func() {
		if recover() != nil { // a method of the user's
			yes = false
		}
	}()
	var late interface{ Timeout() bool }
	switch {
	case errors.Is(err, redeliver.ErrTimeout), errors.Is(err, redeliver.ErrRetryAfter), errors.Is(err, redeliver.ErrNacked),
		errors.Is(err, redeliver.ErrPostponed), errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &late):
		return !late.Timeout()
	default:
		return true
	}
}

var keySeed = maphash.MakeSeed()

// keyHash is what stands for a message's key, or its id where it has none.
func (d *Delivery) keyHash(id string) uint64 {
	if k, ok := d.Record.(Keyed); ok {
		if key := k.MessageKey(); key != nil {
			return maphash.Bytes(keySeed, key)
		}
	}
	return maphash.String(keySeed, id)
}

package redeliver

import (
	"cmp"
	"fmt"
	"time"
)

// Changes of a subscription that the guards of its policy tell of, as
// SubscriptionChanged.Change. Detail says more, and Err why, where it is for the worse.
const (
	ChangeOutage      = "outage"             // nothing new begins: see Outage
	ChangeProbing     = "probing"            // a probe has succeeded, and others follow it
	ChangeOutageOver  = "outage over"        // all messages run again
	ChangeFlood       = "flood"              // too many dead letters: see DeadLetterRate
	ChangeFloodOver   = "flood over"         // all messages run again
	ChangeBudgetSpent = "retry budget spent" // the delays of retries stretch: see RetryBudget
	ChangeBudgetBack  = "retry budget back"  // delays are as planned
)

// Outage says when failures are not the messages' fault: when nearly all fail, and
// one error stands behind many keys. While it lasts nothing new begins and nothing is
// committed past what has not run; no attempt is counted, and no message goes to the
// DLQ because of it. One message at a time is let through, as a probe; when enough of
// them have succeeded everything goes on by itself.
//
// The zero Outage is off. [DefaultOutage] is on, and so is any with a field that is
// set; the fields that are not have their defaults then. Each process judges for itself.
//
// A handler that answers Permanent or Reject blames the message, and that stands in an
// outage, too; so do MaxAge and MaxPostponed, which bound how long a message can wait.
type Outage struct {
	// MinKeys is how many different keys (ids, where messages have no key) must have
	// failed with one error: one of the same type and text, but for its numbers, ids
	// and quotations. It cannot be more than the keys that there are. From 2 to 1000.
	// Default 20, or 3 where the Order is Blocking: only the first message of each
	// partition fails there.
	MinKeys int
	// Share is how many of all attempts must have failed, since the first of those
	// keys did. From 0.1 to 1. Default 0.8.
	Share float64
	// Window is the longest time in which the keys must have failed. From 1 s to 1 h.
	// Default 1 min.
	Window time.Duration
	// Probe is the pause before the first probe; after each probe that fails it
	// doubles, up to MaxPause. From 10 ms to MaxPause. Default 1 s.
	Probe time.Duration
	// MaxPause is the longest pause between two probes, and so how much later than
	// the outage a subscription may notice its end. Up to 1 h. Default 30 s.
	MaxPause time.Duration
	// Probes is how many probes in a row must succeed for the end of the outage. From
	// 1 to 100. Default 3.
	Probes int
}

// DefaultOutage is an [Outage] that is on, with its defaults.
func DefaultOutage() Outage {
	o := Outage{}.withDefaults(KeyOrder)
	o.MinKeys = 0 // by the policy's Order
	return o
}

// On tells whether the guard is asked for.
func (o Outage) On() bool { return o != Outage{} }

func (o Outage) withDefaults(order Order) Outage {
	keys := 20
	if order == Blocking {
		keys = 3
	}
	o.MinKeys = cmp.Or(o.MinKeys, keys)
	o.Share = cmp.Or(o.Share, 0.8)
	o.Window = cmp.Or(o.Window, time.Minute)
	o.MaxPause = cmp.Or(o.MaxPause, max(30*time.Second, o.Probe))
	o.Probe = cmp.Or(o.Probe, min(time.Second, o.MaxPause))
	o.Probes = cmp.Or(o.Probes, 3)
	return o
}

// Poison says when a message is not worth its retries any more: it alone fails again
// and again, always with one error, while others succeed. It goes to the DLQ then,
// exhausted, and its error says why. Time-outs, RetryAfter, postponed messages and
// nacks are never taken for poison. The zero Poison is off; a field that is set turns
// it on.
type Poison struct {
	// Attempts is how many attempts the message must have made. From 2. Default 3.
	Attempts int
	// Others is how many attempts must have succeeded in the Window, and no other key
	// failed with the message's error. From 1. Default 20.
	Others int
	// Window is the time that is looked back. From 1 s to 1 h. Default 1 min.
	Window time.Duration
}

// On tells whether the guard is asked for.
func (p Poison) On() bool { return p != Poison{} }

func (p Poison) withDefaults() Poison {
	p.Attempts = cmp.Or(p.Attempts, 3)
	p.Others = cmp.Or(p.Others, 20)
	p.Window = cmp.Or(p.Window, time.Minute)
	return p
}

// NoFloor as RetryBudget.Floor: no retries but the Share.
const NoFloor = -1

// RetryBudget bounds what retries add to the load of a dependency. When they are more
// than the budget, the delays of messages that fail stretch, up to twice as long, then
// 4 and 8 times, each message's by its own part of that, but not beyond an hour. No
// message is dead-lettered for it. An immediate retry waits as a delayed one then. The
// zero RetryBudget is off; a field that is set turns it on.
//
// Its form and its defaults are those of Finagle's RetryBudget; the chapter "Handling
// Overload" of Google's SRE book has a Share of 0.1.
type RetryBudget struct {
	// Share is how many retries there may be for each first attempt. From 0.001 to
	// 10. Default 0.2.
	Share float64
	// Floor is how many retries a second there may be in any case, so that a quiet
	// service has some. Default 10; NoFloor for none.
	Floor int
	// Window is the time over which both are counted. From 1 s to 1 h. Default 10 s.
	Window time.Duration
}

// On tells whether the guard is asked for.
func (b RetryBudget) On() bool { return b != RetryBudget{} }

func (b RetryBudget) withDefaults() RetryBudget {
	b.Share = cmp.Or(b.Share, 0.2)
	b.Floor = cmp.Or(b.Floor, 10)
	b.Window = cmp.Or(b.Window, 10*time.Second)
	return b
}

// DeadLetterRate is the rate of dead letters above which something else is wrong than
// the messages: a deploy that breaks every one of them, say. When more than Most have
// gone to the DLQ within Window, nothing new begins for the time Pause; then one
// message at a time does, and each that is dead-lettered is followed by another Pause.
// When Trickle in a row have succeeded everything goes on by itself. What was decided
// before goes to the DLQ all the same. The zero DeadLetterRate is off; a field that is
// set turns it on.
type DeadLetterRate struct {
	// Most is how many dead letters there may be in a Window. From 1. Default 100.
	Most int
	// Window is the time over which they are counted. From 1 s to 24 h. Default 1 min.
	Window time.Duration
	// Pause is for how long nothing begins. From 10 ms to 24 h. Default 1 min.
	Pause time.Duration
	// Trickle is how many messages in a row must succeed, one after another. From 1.
	// Default 10.
	Trickle int
}

// On tells whether the guard is asked for.
func (r DeadLetterRate) On() bool { return r != DeadLetterRate{} }

func (r DeadLetterRate) withDefaults() DeadLetterRate {
	r.Most = cmp.Or(r.Most, 100)
	r.Window = cmp.Or(r.Window, time.Minute)
	r.Pause = cmp.Or(r.Pause, time.Minute)
	r.Trickle = cmp.Or(r.Trickle, 10)
	return r
}

// Guarded tells whether the policy has a guard.
func (p *Policy) Guarded() bool {
	return p.Outage.On() || p.Poison.On() || p.RetryBudget.On() || p.DeadLetterRate.On()
}

// guardDefaults fills in the defaults of the guards that are on.
func (p *Policy) guardDefaults() {
	if p.Outage.On() {
		p.Outage = p.Outage.withDefaults(p.Order)
	}
	if p.Poison.On() {
		p.Poison = p.Poison.withDefaults()
	}
	if p.RetryBudget.On() {
		p.RetryBudget = p.RetryBudget.withDefaults()
	}
	if p.DeadLetterRate.On() {
		p.DeadLetterRate = p.DeadLetterRate.withDefaults()
	}
}

// checkGuards notes what is wrong with the guards of a policy that has its defaults.
func (p *Policy) checkGuards(ps *Problems, field func(string) string) {
	if o := p.Outage; o.On() {
		in := func(name string) string { return field("Outage." + name) }
		ps.Count(in("MinKeys"), o.MinKeys, 2, 1000)
		checkShare(ps, in("Share"), o.Share, 0.1, 1)
		ps.Duration(in("Window"), o.Window, time.Second, time.Hour)
		ps.Duration(in("MaxPause"), o.MaxPause, 10*time.Millisecond, time.Hour)
		if o.Probe < 10*time.Millisecond || o.Probe > o.MaxPause {
			ps.Add(in("Probe"), o.Probe, fmt.Sprintf("must be from 10ms to MaxPause, %s, or 0 for the default", o.MaxPause))
		}
		ps.Count(in("Probes"), o.Probes, 1, 100)
	}
	if q := p.Poison; q.On() {
		ps.Count(field("Poison.Attempts"), q.Attempts, 2, MaxAttempts)
		ps.Count(field("Poison.Others"), q.Others, 1, 0)
		ps.Duration(field("Poison.Window"), q.Window, time.Second, time.Hour)
	}
	if b := p.RetryBudget; b.On() {
		checkShare(ps, field("RetryBudget.Share"), b.Share, 0.001, 10)
		if b.Floor < NoFloor {
			ps.Add(field("RetryBudget.Floor"), b.Floor, "must be at least 1, 0 for the default, or NoFloor")
		}
		ps.Duration(field("RetryBudget.Window"), b.Window, time.Second, time.Hour)
	}
	if r := p.DeadLetterRate; r.On() {
		ps.Count(field("DeadLetterRate.Most"), r.Most, 1, 0)
		ps.Duration(field("DeadLetterRate.Window"), r.Window, time.Second, 24*time.Hour)
		ps.Duration(field("DeadLetterRate.Pause"), r.Pause, 10*time.Millisecond, 24*time.Hour)
		ps.Count(field("DeadLetterRate.Trickle"), r.Trickle, 1, 0)
	}
}

// checkShare notes a share that is not from least to most; NaN is none.
func checkShare(ps *Problems, field string, share, least, most float64) {
	if !(share >= least && share <= most) {
		ps.Add(field, share, fmt.Sprintf("must be from %v to %v, or 0 for the default", least, most))
	}
}

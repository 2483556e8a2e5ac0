package redeliver

import (
	"cmp"
	"fmt"
	"time"
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

// On reports whether the guard is asked for.
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

// On reports whether the guard is asked for.
func (r DeadLetterRate) On() bool { return r != DeadLetterRate{} }

func (r DeadLetterRate) withDefaults() DeadLetterRate {
	r.Most = cmp.Or(r.Most, 100)
	r.Window = cmp.Or(r.Window, time.Minute)
	r.Pause = cmp.Or(r.Pause, time.Minute)
	r.Trickle = cmp.Or(r.Trickle, 10)
	return r
}

// Guarded reports whether the policy has a guard.
func (p *Policy) Guarded() bool {
	return p.Outage.On() || p.DeadLetterRate.On()
}

// guardDefaults fills in the defaults of the guards that are on.
func (p *Policy) guardDefaults() {
	if p.Outage.On() {
		p.Outage = p.Outage.withDefaults(p.Order)
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

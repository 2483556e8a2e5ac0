package redeliver

import (
	"cmp"
	"fmt"
	"time"
)

// Outage configures the detection of outages: when nearly all attempts fail, for many keys and with one error, the messages are not
// the cause. In an outage one message at a time runs, as a probe. No other message begins, no failure counts as an attempt, and no
// message goes to the DLQ because of the outage. When enough probes in a row have succeeded, the outage ends.
//
// The zero Outage is on, with its defaults. Off turns it off. Each process detects outages on its own.
//
// Permanent and Reject count even in an outage: they mean that the message is the cause. MaxAge, and the bound of 24 h for
// postponed messages, still limit how long a message waits.
type Outage struct {
	// Off turns the detection off: a failure counts as an attempt also when all messages fail. The other fields must be zero then.
	Off bool
	// MinKeys is how many different keys (or ids, if messages have no key) must fail with one error before there is an outage.
	// Errors are the same if they have the same type, and the same text except for numbers, ids and quotations. From 2 to 1000.
	// Default 20, or 3 with OrderBlocking, in which only the first message of each partition fails.
	MinKeys int
	// Share is the share of all attempts that must have failed since the first failure of those MinKeys. From 0.1 to 1.
	// Default 0.8.
	Share float64
	// Window is the time within which those MinKeys must have failed. From 1 s to 1 h. Default 1 min.
	Window time.Duration
	// Probe is the pause before the first probe. It doubles after each probe that fails with the outage's error.
	// From 10 ms to MaxPause. Default 1 s.
	Probe time.Duration
	// MaxPause is the longest pause between two probes. A subscription may notice the end of an outage that much later. Up to
	// 1 h. Default 30 s.
	MaxPause time.Duration
	// Probes is how many probes in a row must succeed to end the outage. From 1 to 100. Default 3.
	Probes int
}

func (o Outage) withDefaults(order Order) Outage {
	keys := 20
	if order == OrderBlocking {
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

// DeadLetterRate bounds the rate of dead letters. When it is exceeded, the messages are probably not the only cause: for example, a
// deploy may make all of them fail. When more than Max messages have gone to the DLQ within Window, nothing new begins for Pause.
// Then one message at a time begins, and another Pause follows each that is dead-lettered. When Probes messages in a row have
// succeeded, all run again. Messages that had already failed for the last time still go to the DLQ. The zero DeadLetterRate is off; a
// field that is set turns it on.
type DeadLetterRate struct {
	// Max is the maximum number of dead letters in a Window. From 1. Default 100.
	Max int
	// Window is the time over which dead letters are counted. From 1 s to 24 h. Default 1 min.
	Window time.Duration
	// Pause is how long nothing begins. From 10 ms to 24 h. Default 1 min.
	Pause time.Duration
	// Probes is how many messages in a row must succeed, one at a time. From 1. Default 10.
	Probes int
}

func (r DeadLetterRate) withDefaults() DeadLetterRate {
	r.Max = cmp.Or(r.Max, 100)
	r.Window = cmp.Or(r.Window, time.Minute)
	r.Pause = cmp.Or(r.Pause, time.Minute)
	r.Probes = cmp.Or(r.Probes, 10)
	return r
}

// Postpone is [Policy.Decide] for a failure in an outage. It decides as for an error of the function [Postpone], which
// counts as no attempt. But if the error is of RetryAfter, its time is the wait.
func (p Policy) Postpone(s State, err error, now time.Time) Decision {
	if wait, named := retryDelay(err); named && wait > 0 {
		p.Backoff, p.Classify = Fixed(min(wait, MaxWait)), nil
	}
	d := p.Decide(s, Postpone(err), now)
	if d.Action == ActionPostpone {
		d.State.Error = p.errorText(err) // the handler's error, without the wrapper
		d.State.setFirstError(s.earliestError())
	}
	return d
}

// guardDefaults fills in the defaults of the guards that are on.
func (p *Policy) guardDefaults() {
	if !p.Outage.Off {
		p.Outage = p.Outage.withDefaults(p.Order)
	}
	if p.DeadLetterRate != (DeadLetterRate{}) {
		p.DeadLetterRate = p.DeadLetterRate.withDefaults()
	}
	p.Rate = p.Rate.withDefaults()
}

// checkGuards adds the problems of the guards of a policy that has its defaults.
func (p *Policy) checkGuards(ps *problems, field func(string) string) {
	if p.Outage.Off && p.Outage != (Outage{Off: true}) {
		ps.Add(field("Outage.Off"), true, "must be false if another field of Outage is set")
	}
	if o := p.Outage; !o.Off {
		in := func(name string) string { return field("Outage." + name) }
		checkRange(ps, in("MinKeys"), o.MinKeys, 2, 1000)
		checkShare(ps, in("Share"), o.Share, 0.1, 1)
		checkRange(ps, in("Window"), o.Window, time.Second, time.Hour)
		checkRange(ps, in("MaxPause"), o.MaxPause, 10*time.Millisecond, time.Hour)
		if o.Probe < 10*time.Millisecond || o.Probe > o.MaxPause {
			ps.Add(in("Probe"), o.Probe, fmt.Sprintf("must be from 10ms to MaxPause, %s, or 0 for the default", o.MaxPause))
		}
		checkRange(ps, in("Probes"), o.Probes, 1, 100)
	}
	p.Rate.check(ps, field("Rate"))
	if r := p.DeadLetterRate; r != (DeadLetterRate{}) {
		checkRange(ps, field("DeadLetterRate.Max"), r.Max, 1, 0)
		checkRange(ps, field("DeadLetterRate.Window"), r.Window, time.Second, 24*time.Hour)
		checkRange(ps, field("DeadLetterRate.Pause"), r.Pause, 10*time.Millisecond, 24*time.Hour)
		checkRange(ps, field("DeadLetterRate.Probes"), r.Probes, 1, 0)
	}
}

// checkShare adds a problem if share is not from minShare to maxShare, or is NaN.
func checkShare(ps *problems, field string, share, minShare, maxShare float64) {
	if !(share >= minShare && share <= maxShare) {
		ps.Add(field, share, fmt.Sprintf("must be from %v to %v, or 0 for the default", minShare, maxShare))
	}
}

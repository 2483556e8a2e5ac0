package redeliver

import "time"

// What a guard makes of a decision. Like Decide these are functions of their
// arguments alone; when they are asked for, package delayqueue knows.

// MaxStretch is the longest delay that a [RetryBudget] makes of a shorter one.
const MaxStretch = time.Hour

// PostponeInto is DecideInto for a failure that is not its message's fault: it is put
// aside as by [Postpone], or for as long as RetryAfter says. d has the state under which
// the attempt ran. What is no attempt, and what blames the message, is decided as ever.
func (p *Policy) PostponeInto(d *Decision, err error, now time.Time) {
	if wait, named := retryAfter(err); named && wait > 0 {
		q := *p
		q.Backoff, q.Classify = Fixed(min(wait, MaxWait)), nil
		q.DecideInto(d, Postpone(err), now)
	} else {
		p.DecideInto(d, Postpone(err), now)
	}
	if d.Action == Postponed {
		d.State.Error = p.errorText(err) // and not of what wraps it, which ErrorText does not expect
	}
}

// CutShort changes a decision to retry: the message goes to the DLQ now, exhausted,
// although it has retries left. The policy has ended them, and not the handler, whose
// word permanent is. why stands before the failure in State.Error.
func (d *Decision) CutShort(why string) {
	d.State.Due, d.Delay = time.Time{}, 0
	d.bound(ReasonExhausted, why)
}

// Stretch changes a decision to retry: the message waits up to factor times as long,
// each for a time of its own, but for no more than most, or MaxStretch where that is 0,
// and not past what its MaxAge or its own end leaves it. A retry at once becomes a delayed one.
func (p *Policy) Stretch(d *Decision, factor int, most time.Duration, now time.Time) {
	if factor <= 1 || d.Action != RetryLater && d.Action != RetryNow {
		return
	}
	if most <= 0 {
		most = MaxStretch
	}
	s, planned := &d.State, d.Delay
	if d.Action == RetryNow {
		var ok bool
		full := p.WithDefaults()
		if planned, ok = (Class{Backoff: full.Backoff}).delay(s, 0); !ok {
			return
		}
	}
	part := float64(factor) / 2 * (1 + draw(s.ID, s.Attempts)) // from half of it to all
	wait := max(planned, min(time.Duration(float64(planned)*part), most))
	now = now.UTC()
	due, latest := CeilMilli(now.Add(wait)), p.latest(s)
	if !latest.IsZero() && due.After(latest) {
		wait = planned
		if due = CeilMilli(now.Add(wait)); due.After(latest) { // it was to run at once
			return
		}
	}
	d.Action, s.Due, d.Delay = RetryLater, due, wait
}

// latest is the latest time at which a message may run again; zero for any.
func (p *Policy) latest(s *State) time.Time {
	latest := s.Expires
	born := s.Source.Timestamp
	if born.IsZero() {
		born = s.FirstFailed
	}
	if p.MaxAge > 0 && !born.IsZero() {
		if end := born.Add(p.MaxAge); latest.IsZero() || end.Before(latest) {
			latest = end
		}
	}
	return latest
}

// Cause names what failed: errors of one type whose texts are the same, but for their
// numbers, ids and quotations, have the same. It is the State's ErrorType and Error.
func (s *State) Cause() uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for _, part := range [...]string{s.ErrorType, Normalise(s.Error)} {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * prime
		}
		h *= prime
	}
	return h
}

// Sparable tells whether an outage keeps a decision's message out of the DLQ and its
// attempt uncounted: the dependency may have failed, and not the message, which has met
// no limit in time.
func (d *Decision) Sparable() bool {
	switch d.Action {
	case RetryNow, RetryLater:
		return true
	case DeadLetter:
		return d.State.Reason == ReasonExhausted || d.State.Reason == ReasonTimeout || d.State.Reason == ReasonPanic
	default:
		return false
	}
}

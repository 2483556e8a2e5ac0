package redeliver

import "time"

// What a guard makes of a decision. Like Decide these are functions of their
// arguments alone; when they are asked for, package delayqueue knows.

// Postpone is [Policy.Decide] for a failure that is not its message's fault: it is put
// aside as by [Postpone], or for as long as RetryAfter says. What is no attempt, and what
// blames the message, is decided as ever.
func (p Policy) Postpone(s State, err error, now time.Time) Decision {
	if wait, named := retryAfter(err); named && wait > 0 {
		p.Backoff, p.Classify = Fixed(min(wait, MaxWait)), nil
	}
	d := p.Decide(s, Postpone(err), now)
	if d.Action == Postponed {
		d.State.Error = p.errorText(err) // and not of what wraps it, which ErrorText does not expect
	}
	return d
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

// Sparable reports whether an outage keeps a decision's message out of the DLQ and its
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

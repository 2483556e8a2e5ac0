package redeliver

import "time"

// Postpone is [Policy.Decide] for a failure in an outage: the message is put aside as by [Postpone], or for the time of RetryAfter. A
// failure that is no attempt or that blames the message is decided as by Decide. Like Decide it is a pure function.
func (p Policy) Postpone(s State, err error, now time.Time) Decision {
	if wait, named := retryDelay(err); named && wait > 0 {
		p.Backoff, p.Classify = Fixed(min(wait, MaxWait)), nil
	}
	d := p.Decide(s, Postpone(err), now)
	if d.Action == Postponed {
		d.State.Error = p.errorText(err) // of err, because ErrorText does not expect the wrapper
	}
	return d
}

// Cause is a hash of ErrorType and Error. Errors of one type whose texts differ only in numbers, ids and quotations have the same.
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

// Sparable reports whether an outage turns the decision into a postponement: the dependency may have caused the failure, and the
// message has met no limit in time.
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

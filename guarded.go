package redeliver

import "time"

// Postpone is [Policy.Decide] for a failure in an outage: the message is put aside as by [Postpone], or for the time of
// RetryAfter. A failure that is not an attempt, or that the message itself causes, is decided as by Decide. Like Decide
// it is a pure function.
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

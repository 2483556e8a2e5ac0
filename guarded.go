package redeliver

import "time"

// Postpone is [Policy.Decide] for a failure in an outage. It decides as for an error of the function [Postpone], which
// counts as no attempt. But if the error is of RetryAfter, its time is the wait.
func (p Policy) Postpone(s State, err error, now time.Time) Decision {
	if wait, named := retryDelay(err); named && wait > 0 {
		p.Backoff, p.Classify = Fixed(min(wait, MaxWait)), nil
	}
	d := p.Decide(s, Postpone(err), now)
	if d.Action == Postponed {
		d.State.Error = p.errorText(err) // the handler's error, without the wrapper
	}
	return d
}

package redeliver

import "time"

// Postpone is [Policy.Decide] for a failure in an outage: it postpones the message, as the function [Postpone] does, or for the time
// of RetryAfter. It decides as Decide does about a failure that counts as no attempt.
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

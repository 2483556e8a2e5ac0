package binding

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/limits"
)

// PublishDue reads Watermill's delay metadata (package components/delay) and returns when a message published at now
// may be delivered. ok is false if no delay is left. Watermill cuts the absolute time to the second. PublishDue finds
// the rest of that second in the relative delay, if there is one, so that the message is not early.
func PublishDue(msg *message.Message, now time.Time) (due time.Time, ok bool, err error) {
	until, wait := msg.Metadata.Get(delay.DelayedUntilKey), msg.Metadata.Get(delay.DelayedForKey)
	if until == "" && wait == "" {
		return time.Time{}, false, nil
	}
	var problems check.Problems
	var d time.Duration
	if until != "" {
		due, err = time.Parse(time.RFC3339, until)
		if err != nil {
			problems.Add(delay.DelayedUntilKey, limits.Cut(until, 64), "must be an RFC 3339 time; set it with package components/delay")
		}
	}
	if wait != "" {
		d, err = time.ParseDuration(wait)
		if err != nil {
			problems.Add(delay.DelayedForKey, limits.Cut(wait, 64), "must be a duration; set it with package components/delay")
		}
	}
	if err := problems.Err(); err != nil {
		return time.Time{}, false, err
	}
	switch {
	case until == "":
		due = now.Add(d)
	case wait != "":
		if end := due.Add(time.Second); now.Add(d).After(end) {
			due = end
		} else if now.Add(d).After(due) {
			due = now.Add(d)
		}
	}
	if due.Sub(now) > redeliver.MaxWait {
		return time.Time{}, false, &redeliver.UnschedulableError{Wait: due.Sub(now), Max: redeliver.MaxWait}
	}
	return limits.CeilMilli(due), due.After(now), nil
}

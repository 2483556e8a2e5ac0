package redeliver

import (
	"errors"
	"fmt"
	"time"

	"github.com/redeliver/redeliver/internal/limits"
)

// HeaderExpires is the header in which a producer says when its message expires: an RFC 3339 time. From then on no
// attempt begins, and the message goes to the DLQ, expired. It is the only redeliver header that counts on an origin.
const HeaderExpires = "redeliver-expires"

// ErrExpired marks a message that is too old to run. See [ExpiredError].
var ErrExpired = errors.New("message has expired")

// ExpiredError means that a message is too old to run. No attempt is counted for it.
type ExpiredError struct {
	// Limit describes the limit that the message has passed: MaxAge, or its own expiry.
	Limit string
	// End is the time of the limit.
	End time.Time
}

func (e *ExpiredError) Error() string {
	if e == nil || e.Limit == "" {
		return ErrExpired.Error()
	}
	return "it has passed " + e.Limit
}

// Is makes errors.Is(err, ErrExpired) true.
func (e *ExpiredError) Is(target error) bool { return target == ErrExpired }

// SetExpires sets the time at which a message expires. headers are those of a message to be published, for example
// Watermill's Metadata. t is rounded up to milliseconds.
func SetExpires(headers interface{ Set(name, value string) }, t time.Time) {
	headers.Set(HeaderExpires, string(limits.AppendTime(nil, limits.CeilMilli(t))))
}

// CheckExpired returns an [ExpiredError] if no attempt of a message with the state s may begin at t, because t is past MaxAge or past
// the message's own expiry. Subscribers call it before each attempt.
func (p *Policy) CheckExpired(s *State, t time.Time) error {
	if e := p.expired(s, t); e != nil {
		return e
	}
	return nil
}

func (p *Policy) expired(s *State, t time.Time) *ExpiredError {
	// After a replay, or in a consumer of a DLQ, the message runs although it has expired.
	if !s.Expires.IsZero() && t.After(s.Expires) && s.Replays == 0 && s.DeadLetter == nil {
		return &ExpiredError{"the end that the message itself names, " + string(limits.AppendTime(nil, s.Expires)), s.Expires}
	}
	if p.MaxAge <= 0 {
		return nil
	}
	created, of := s.Replayed, "its replay"
	if created.IsZero() {
		created, of = s.Source.Timestamp, "its timestamp in the origin"
	}
	if !limits.Plausible(created) || !s.FirstFailed.IsZero() && created.After(s.FirstFailed) && s.Replayed.IsZero() {
		created, of = s.FirstFailed, "its first failure"
	}
	end := created.Add(p.MaxAge)
	if created.IsZero() || !t.After(end) {
		return nil
	}
	return &ExpiredError{fmt.Sprintf("MaxAge, %s after %s, %s", p.MaxAge, of, limits.AppendTime(nil, created)), end}
}

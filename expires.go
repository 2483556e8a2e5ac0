package redeliver

import (
	"errors"
	"fmt"
	"time"
)

// HeaderExpires is the header in which a producer says when its message expires: an RFC 3339 time. It is the
// only header of redeliver's that is believed on an origin. From then on no attempt begins: the message goes to
// the DLQ, expired.
const HeaderExpires = "redeliver-expires"

// ErrExpired marks a message that is too old to run. See [ExpiredError].
var ErrExpired = errors.New("message has expired")

// ExpiredError says that a message is too old to run. No attempt is counted for it.
type ExpiredError struct {
	// Limit names the limit that is over: MaxAge, or the end that the message itself names.
	Limit string
	// End is when it was over.
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

// SetExpires has a message expire at t. headers are those of a message that is to be published, Watermill's
// Metadata for one. t is written in milliseconds, rounded up.
func SetExpires(headers interface{ Set(name, value string) }, t time.Time) {
	headers.Set(HeaderExpires, string(appendTime(nil, CeilMilli(t))))
}

// ParseExpires reads the value of HeaderExpires. ok is false for what is no RFC 3339 time: such a message does not
// expire.
func ParseExpires(value string) (t time.Time, ok bool) {
	if value == "" { // as a rule; the error that says so is an allocation
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil || !inRange(t) {
		return time.Time{}, false
	}
	return t.UTC(), true
}

// Expired returns an [ExpiredError] where no attempt of a message with the state s may begin at t, because it would be
// later than MaxAge or than the end that the message itself names. Subscribers ask before each attempt.
func (p *Policy) Expired(s *State, t time.Time) error {
	if e := p.expired(s, t); e != nil {
		return e
	}
	return nil
}

func (p *Policy) expired(s *State, t time.Time) *ExpiredError {
	// A replay or a consumer of a DLQ wants the message to run, although the end that its producer named is over.
	if !s.Expires.IsZero() && t.After(s.Expires) && s.Replays == 0 && s.DeadLetter == nil {
		return &ExpiredError{"the end that the message itself names, " + string(appendTime(nil, s.Expires)), s.Expires}
	}
	if p.MaxAge <= 0 {
		return nil
	}
	born, of := s.Replayed, "its replay"
	if born.IsZero() {
		born, of = s.Source.Timestamp, "its timestamp in the origin"
	}
	if born.IsZero() {
		born, of = s.FirstFailed, "its first failure"
	}
	end := born.Add(p.MaxAge)
	if born.IsZero() || !t.After(end) {
		return nil
	}
	return &ExpiredError{fmt.Sprintf("MaxAge, %s after %s, %s", p.MaxAge, of, appendTime(nil, born)), end}
}

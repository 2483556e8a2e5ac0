package redeliver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redeliver/redeliver/internal/contextkey"
)

// State is what redeliver knows about one message in one group. It is in the message's headers, which count only on
// topics that redeliver writes. The zero State is that of a message without an attempt.
type State struct {
	// ID is the message's id in all attempts, in the DLQ and after replays.
	ID string
	// Group is the consumer group whose handler failed.
	Group string
	// Origin is the topic or queue that the message was first consumed from.
	Origin string
	// Attempts is the number of attempts that have ended. See [State.Attempt] for the number of the running one.
	Attempts int
	// Due is when the next attempt may start. Zero when nothing is planned.
	Due time.Time
	// FirstFailed and LastFailed are when the first and the latest attempt failed.
	FirstFailed, LastFailed time.Time
	// PostponedSince is when the message was postponed first, since its latest attempt that counted. Zero unless the latest
	// decision was to postpone it.
	PostponedSince time.Time
	// Error and ErrorType describe the latest failure. The text is cut to 512 bytes and has no credentials of URLs.
	Error, ErrorType string
	// FirstError is the text of the failure at FirstFailed, cut to 512 bytes, if it is another one than Error. If the headers
	// do not have that text, because it did not fit or an older version wrote them, it is the earliest one that they have.
	FirstError string
	// Reason says why the message is in the DLQ. It is empty for other messages.
	Reason Reason
	// Source is the message's place in its origin.
	Source Source
	// Policy is the fingerprint of the policy that decided about the wait, see [Policy.Fingerprint].
	Policy string
	// Expires is the message's own expiry, from HeaderExpires or, on RabbitMQ, its expiration: from then on no attempt begins.
	// Zero for none. The adapter reads it from the message each time.
	Expires time.Time
	// Replays counts how often the message was sent again from the DLQ.
	Replays int
	// Replayed is the time of the latest replay. [Policy].MaxAge counts from then on.
	Replayed time.Time
	// Trace is the traceparent (W3C Trace Context) of the latest attempt with a tracer. It is empty if there was none,
	// and while the first attempt runs.
	Trace string
	// Truncated is the length in bytes and the hash of the body that a dead letter lacks, because the DLQ refused it:
	// "18874368 sha256:...". Source says where the original is. On RabbitMQ the dead letter has a part of the body, and other
	// dead letters have the other parts. It is empty if the body is complete.
	Truncated string
	// DeadLetter is set if the subscription reads a DLQ. It is the state that the message has as a dead letter: its origin, the
	// group that failed it, attempts, reason, error and times. It has no header of its own: the message keeps the headers that
	// it has in the DLQ.
	DeadLetter *State
}

// Source is a message's place in its origin. On brokers without partitions and offsets only the timestamp is set.
type Source struct {
	// Known reports whether Partition and Offset are set. A waiting delayed publish has neither.
	Known     bool
	Partition int32
	Offset    int64
	// Timestamp is the broker's or producer's time of the message. Zero if unknown.
	Timestamp time.Time
}

// earliestError returns the text of the earliest failure of an attempt that the state has, or "".
func (s *State) earliestError() string {
	if s.FirstFailed.IsZero() { // an error without an attempt, as of a postponement
		return ""
	}
	return cmp.Or(s.FirstError, s.Error)
}

// setFirstError sets FirstError, or clears it if text is that of the latest failure.
func (s *State) setFirstError(text string) {
	if text == s.Error {
		text = ""
	}
	s.FirstError = text
}

// Attempt returns the number of the attempt that runs now or next: 1 for the first delivery.
func (s State) Attempt() int { return s.Attempts + 1 }

// Reason says why a message is in the DLQ.
type Reason string

// The reasons, as in the header redeliver-reason.
const (
	ReasonExhausted     Reason = "exhausted"     // its retries ran out
	ReasonPermanent     Reason = "permanent"     // the handler or Classify said that a retry is useless
	ReasonExpired       Reason = "expired"       // it is past MaxAge or its own expiry, its next retry would be, or it was postponed for 24 h in a row
	ReasonUndecodable   Reason = "undecodable"   // it cannot be decoded
	ReasonTimeout       Reason = "timeout"       // its retries ran out, the last attempt with its Timeout
	ReasonPanic         Reason = "panic"         // its retries ran out, the last attempt with a panic
	ReasonCrashed       Reason = "crashed"       // it ran alone when its process died, MaxCrashes times
	ReasonInvalidated   Reason = "invalidated"   // Policy.Invalid said that it must no longer run
	ReasonRejected      Reason = "rejected"      // the handler rejected it
	ReasonUnschedulable Reason = "unschedulable" // the broker cannot hold the delay that was asked for
)

// Reasons returns all reasons, in the order in which they are documented.
func Reasons() []Reason { return slices.Clone(allReasons[:]) }

var allReasons = [...]Reason{
	ReasonExhausted, ReasonPermanent, ReasonExpired, ReasonUndecodable, ReasonTimeout,
	ReasonPanic, ReasonCrashed, ReasonInvalidated, ReasonRejected, ReasonUnschedulable,
}

// FromContext returns the state of the message whose handler got ctx: its attempt number, its origin, its group, its
// latest error. ok is false if ctx does not belong to a message of redeliver.
func FromContext(ctx context.Context) (s State, ok bool) {
	switch v := ctx.Value(contextkey.State{}).(type) {
	case State:
		return v, true
	case interface{ State() State }:
		return v.State(), true
	default:
		return State{}, false
	}
}

// NewContext returns ctx with the state of a message, for tests of handlers and for adapters without their own context.
func NewContext(ctx context.Context, s State) context.Context {
	return context.WithValue(ctx, contextkey.State{}, s)
}

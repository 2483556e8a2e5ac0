package redeliver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"
	"unicode/utf8"
)

// State is what redeliver knows of one message in one group. It travels in the
// message's headers and is believed only on topics that redeliver writes.
// The zero State is a message that was never attempted.
type State struct {
	// ID names the message through all attempts, the DLQ and replays.
	ID string
	// Group is the consumer group whose handler failed.
	Group string
	// Origin is the topic or queue that the message was first consumed from.
	Origin string
	// Attempts is the number of attempts made so far. While the handler runs,
	// the running attempt is not in it: see [State.Attempt].
	Attempts int
	// Due is when the next attempt may start. Zero when nothing is planned.
	Due time.Time
	// FirstFailed and LastFailed are when the first and the latest attempt failed.
	FirstFailed, LastFailed time.Time
	// PostponedSince is when an open circuit breaker first put the message
	// aside. Zero unless that was its latest answer.
	PostponedSince time.Time
	// Error and ErrorType describe the latest failure. The text is cut to
	// MaxErrorText bytes and has no credentials of URLs in it.
	Error, ErrorType string
	// Reason says why the message is in the DLQ. Empty before.
	Reason Reason
	// Source is where the message stood in its origin.
	Source Source
	// Policy is the fingerprint of the policy that planned the wait, see
	// [Policy.Fingerprint].
	Policy string
	// Schedule is the rule by which the wait was planned, and by which the message
	// goes on, see [Policy.Schedule]. It travels with Policy, where that is a fingerprint.
	Schedule string
	// Expires is the end that the message itself names, in HeaderExpires or, on RabbitMQ, by
	// its expiration: from then on no attempt begins. Zero for none. The adapter reads it from
	// the message each time.
	Expires time.Time
	// Replays counts how often the message was sent again from the DLQ.
	Replays int
	// Replayed is when that was done last. [Policy].MaxAge counts from then on.
	Replayed time.Time
	// Trace is the latest attempt that a [Tracer] has seen, as a traceparent of W3C's
	// Trace Context. Empty where there was none, and while the first attempt runs.
	Trace string
	// Truncated says of a dead letter without its body what was left out, because the DLQ
	// refused it: its length in bytes and its hash, "18874368 sha256:...". Source says
	// where the original is. On RabbitMQ the dead letter has a part of the body, and others
	// have the other parts. Empty where nothing was left out.
	Truncated string
	// DeadLetter is the state with which the message lay in the DLQ that the subscription
	// reads: the origin and the group that failed it there, attempts, reason, error and times.
	// Nil where the subscription reads no DLQ. It is no header of the message's state: the
	// message keeps it as it stood in the DLQ.
	DeadLetter *State
}

// Source is a message's place in its origin. On brokers without partitions and
// offsets only the timestamp is set.
type Source struct {
	// Known is false when the message never stood in its origin: a delayed
	// publish that is still waiting.
	Known     bool
	Partition int32
	Offset    int64
	// Timestamp is the broker's or producer's time of the message. Zero if unknown.
	Timestamp time.Time
}

// Attempt is the number of the attempt that runs now, or that will run next:
// 1 for the first delivery.
func (s State) Attempt() int { return s.Attempts + 1 }

// Reason says why a message rests in the DLQ.
type Reason string

// The reasons, as they stand in the header redeliver-reason.
const (
	ReasonExhausted     Reason = "exhausted"     // its retries ran out
	ReasonPermanent     Reason = "permanent"     // the handler or Classify said that a retry is useless
	ReasonExpired       Reason = "expired"       // it is past MaxAge or its own end, or its next retry would be, or it was postponed too long
	ReasonUndecodable   Reason = "undecodable"   // its bytes are no message
	ReasonTimeout       Reason = "timeout"       // its retries ran out, the last attempt by its Timeout
	ReasonPanic         Reason = "panic"         // its retries ran out, the last attempt by a panic
	ReasonCrashed       Reason = "crashed"       // it was alone when its process died, MaxCrashes times
	ReasonInvalidated   Reason = "invalidated"   // Policy.Invalid said that it must no longer run
	ReasonRejected      Reason = "rejected"      // the handler rejected it by name
	ReasonUnschedulable Reason = "unschedulable" // the broker cannot hold the delay that was asked for
)

// Reasons returns all reasons, in the order in which they are documented.
func Reasons() []Reason { return slices.Clone(reasons[:]) }

var reasons = [...]Reason{
	ReasonExhausted, ReasonPermanent, ReasonExpired, ReasonUndecodable, ReasonTimeout,
	ReasonPanic, ReasonCrashed, ReasonInvalidated, ReasonRejected, ReasonUnschedulable,
}

// ContextKey is the key under which a message's context answers with its state.
// Only adapters need it: the value is a [State] or anything with a method
// State() State. Handlers call [FromContext].
type ContextKey struct{}

// FromContext returns the state of the message whose handler got ctx: its
// attempt number, its origin, its group, what went wrong before. ok is false
// when ctx belongs to no message of redeliver.
func FromContext(ctx context.Context) (s State, ok bool) {
	switch v := ctx.Value(ContextKey{}).(type) {
	case State:
		return v, true
	case interface{ State() State }:
		return v.State(), true
	default:
		return State{}, false
	}
}

// NewContext returns ctx with the state of a message in it, for tests of
// handlers and for adapters without a context of their own.
func NewContext(ctx context.Context, s State) context.Context {
	return context.WithValue(ctx, ContextKey{}, s)
}

// ShortID returns id as it may stand in a header: unchanged, or, where it is
// longer than 512 bytes or no UTF-8, a hash of it.
func ShortID(id string) string {
	if len(id) <= maxName && utf8.ValidString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

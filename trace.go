package redeliver

import (
	"context"
	"strings"
	"time"
)

// Tracer puts spans around handlers; observe/otel has one for OpenTelemetry. Many goroutines call its methods at once while they
// handle messages, so they must be quick and must not block. The library does the same with and without a tracer, and ignores its
// panics.
type Tracer interface {
	// Begin is called before a handler runs. The handler gets a context below the returned one, which must be ctx or below it.
	// A nil Span is none.
	//
	// A handler of single messages has a run for each attempt, immediate retries included. A batch function has one for each
	// call, with all its messages.
	Begin(ctx context.Context, run *TracedRun) (context.Context, Span)
	// DeadLettered is called when the broker has confirmed that a message is in the DLQ, before its source is acked. ctx has the
	// values of the context that Begin returned for the failed attempt, and no end. Where there was no attempt, it has the
	// values of Subscribe's context.
	DeadLettered(ctx context.Context, b *Burial)
}

// Span is a run that has begun.
type Span interface {
	// Traceparent is the run's traceparent, as in W3C's Trace Context. A message that fails carries it in State.Trace. "" for
	// none.
	Traceparent() string
	// End is called once, from any goroutine: when the handler has answered or its time is over, after the policy has decided
	// and before anything is written.
	End(e RunEnd)
}

// TracedRun is one call of a handler.
type TracedRun struct {
	Origin, Group string
	// Batch is true for a batch function, false for a handler of single messages.
	Batch bool
	// Messages has one message where Batch is false.
	Messages []TracedMessage
}

// TracedMessage is a message of a run.
type TracedMessage struct {
	// State is the message's state before the attempt: State.Attempt() is its number, State.Trace the traceparent of the
	// attempt before.
	State State
	// Headers are the user's, as the producer wrote them. Nil where the message cannot be read.
	Headers Headers
}

// RunEnd says how a run ended.
type RunEnd struct {
	Outcome Outcome
	// State is the message's state after the policy's decision; nil where the policy was not asked. It must be neither kept nor
	// changed.
	State *State
	// Err is the failure; nil for a success.
	Err error
}

// Outcome says how a run ended.
type Outcome string

// The outcomes. OutcomeDeadLettered and OutcomeDiscarded are failures for good.
const (
	OutcomeSucceeded    Outcome = "succeeded"
	OutcomeRetried      Outcome = "retried"       // it runs again, at once or later
	OutcomePostponed    Outcome = "postponed"     // put aside; no attempt was counted
	OutcomeDeadLettered Outcome = "dead-lettered" // State.Reason says why
	OutcomeDiscarded    Outcome = "discarded"     // as dead-lettered, where there is no DLQ
	OutcomeAbandoned    Outcome = "abandoned"     // the session has ended: the message comes back, and the attempt does not count
	OutcomeSettled      Outcome = "settled"       // the handler has acked or nacked the message itself
	OutcomeGathered     Outcome = "gathered"      // it waits for a batch, which has a run of its own
	OutcomeAnswered     Outcome = "answered"      // a batch function ended: each message has an answer of its own
)

// Burial is a message that was written to the DLQ.
type Burial struct {
	// Message has the state that was written: State.Reason says why, State.Trace is the traceparent of the failed attempt, if
	// there was one.
	Message TracedMessage
	// Where is the DLQ.
	Where string
	// Began is the time of the decision.
	Began time.Time
	// Err is the failure.
	Err error
}

// isTraceparent reports whether s is a traceparent of version 00 (https://www.w3.org/TR/trace-context/):
// 00-<trace id>-<span id>-<flags>, in lower-case hexadecimal digits.
func isTraceparent(s string) bool {
	return len(s) == 55 && s[:3] == "00-" && isTraceID(s[3:35]) && s[35] == '-' && isTraceID(s[36:52]) && s[52] == '-' && isHex(s[53:])
}

// TraceID is the trace id in Trace, 32 hexadecimal digits. Empty where Trace has none.
func (s *State) TraceID() string {
	if !isTraceparent(s.Trace) {
		return ""
	}
	return s.Trace[3:35]
}

// isTraceID reports whether s is hexadecimal and not zero.
func isTraceID(s string) bool { return isHex(s) && strings.Trim(s, "0") != "" }

func isHex(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') }) < 0
}

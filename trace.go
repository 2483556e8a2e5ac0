package redeliver

import (
	"context"
	"strings"
	"time"
)

// Tracer puts a span around what handlers do, which a [Sink] cannot: it is only told.
// observe/otel has one for OpenTelemetry. Its methods are called from many goroutines at
// once, on the way of the messages, so they must be quick and must not block. What the
// library does is the same with and without a tracer, and one that panics is as none.
type Tracer interface {
	// Begin is called before a handler runs. The handler gets a context below the
	// one that is returned, which must be ctx or below it. A nil Span is none.
	//
	// A handler of single messages has a run for each attempt, also where it is tried
	// again at once. A batch function has one for each call, with all its messages.
	Begin(ctx context.Context, run *TracedRun) (context.Context, Span)
	// DeadLettered is called when the broker has confirmed that a message rests in the
	// DLQ, before its source is acked. ctx is the one that Begin returned for the
	// attempt that has failed, without its end; where there was none it has the values
	// of Subscribe's.
	DeadLettered(ctx context.Context, b *Burial)
}

// Span is a run that has begun.
type Span interface {
	// Traceparent names the run, as the header traceparent of W3C's Trace Context
	// does. It travels with a message that fails, in State.Trace. "" for none.
	Traceparent() string
	// End is called once, from any goroutine: when the handler has answered, or when
	// it is out of its time, whatever it does then. It is called after the policy has
	// decided and before anything is written.
	End(e RunEnd)
}

// TracedRun is what a handler is called for.
type TracedRun struct {
	Origin, Group string
	// Batch tells a batch function from a handler of single messages.
	Batch bool
	// Messages has one message where Batch is false.
	Messages []TracedMessage
}

// TracedMessage is a message of a run.
type TracedMessage struct {
	// State is the message's before the attempt: State.Attempt() is its number, and
	// State.Trace the attempt before that.
	State State
	// Headers are the user's own, as the producer wrote them. Nil where the message
	// cannot be read.
	Headers Headers
}

// RunEnd says how a run ended.
type RunEnd struct {
	Outcome Outcome
	// State is the message's state after the answer, where the policy was asked for
	// one; else nil. It must be neither kept nor changed.
	State *State
	// Err is what failed; nil for a success.
	Err error
}

// Outcome says how a run ended.
type Outcome string

// The outcomes. OutcomeDeadLettered and OutcomeDiscarded are failures for good.
const (
	OutcomeSucceeded    Outcome = "succeeded"
	OutcomeRetried      Outcome = "retried"       // it runs again, at once or later
	OutcomePostponed    Outcome = "postponed"     // put aside, no attempt was counted
	OutcomeDeadLettered Outcome = "dead-lettered" // State.Reason says why
	OutcomeDiscarded    Outcome = "discarded"     // as dead-lettered, where there is no DLQ
	OutcomeAbandoned    Outcome = "abandoned"     // the session has ended: it comes back, uncounted
	OutcomeSettled      Outcome = "settled"       // the handler has acked or nacked it by itself
	OutcomeGathered     Outcome = "gathered"      // it waits for a batch, whose run is another
	OutcomeAnswered     Outcome = "answered"      // a batch function ended: each message has an answer of its own
)

// Burial is a message that was written to the DLQ.
type Burial struct {
	// Message has the state that was written: State.Reason says why, State.Trace is the
	// attempt that has failed, if any ran.
	Message TracedMessage
	// Where is the DLQ.
	Where string
	// Began is when it was decided.
	Began time.Time
	// Err is what failed.
	Err error
}

// isTraceparent reports whether s is a traceparent as https://www.w3.org/TR/trace-context/
// has it in version 00: 00-<trace id>-<span id>-<flags>, in small hexadecimal digits.
func isTraceparent(s string) bool {
	return len(s) == 55 && s[:3] == "00-" && isTraceID(s[3:35]) && s[35] == '-' && isTraceID(s[36:52]) && s[52] == '-' && isHex(s[53:])
}

// TraceID is the trace of the latest attempt that a [Tracer] has seen: 32 hexadecimal digits,
// as tools for traces are asked for it. Empty where Trace names none.
func (s *State) TraceID() string {
	if !isTraceparent(s.Trace) {
		return ""
	}
	return s.Trace[3:35]
}

// isTraceID reports whether s is hexadecimal and not zero, which is no id.
func isTraceID(s string) bool { return isHex(s) && strings.Trim(s, "0") != "" }

func isHex(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') }) < 0
}

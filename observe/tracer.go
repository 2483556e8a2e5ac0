package observe

import (
	"context"
	"time"

	"github.com/redeliver/redeliver"
)

// Tracer puts spans around handlers. observe/otel has one. Many goroutines call its methods at once while they
// handle messages, so they must be quick and must not block. A tracer does not change what the library does, and its
// panics are ignored.
type Tracer interface {
	// Begin is called before a handler runs. The handler gets a context below the returned one, which must be ctx or below it.
	// A nil Span means no span.
	//
	// A handler of single messages has a run for each attempt, immediate retries included. A batch function has one for each
	// call, with all its messages.
	Begin(ctx context.Context, run *Run) (context.Context, Span)
	// DeadLettered is called when the broker has confirmed that a message is in the DLQ, before its source is acked.
	// ctx never ends. It has the values of the context that Begin returned for the failed attempt or, without an
	// attempt, of Subscribe's context.
	DeadLettered(ctx context.Context, b *DeadLetter)
}

// Span is a run that has begun.
type Span interface {
	// Traceparent is the run's traceparent, as in W3C's Trace Context. A message that fails carries it in State.Trace.
	// "" means none.
	Traceparent() string
	// End is called once, from any goroutine: when the handler has answered or its time is over, after the policy has decided
	// and before anything is written.
	End(e End)
}

// Run is one call of a handler.
type Run struct {
	Origin, Group string
	// Batch is true for a batch function, false for a handler of single messages.
	Batch bool
	// Messages has one message if Batch is false.
	Messages []Message
}

// Message is a message of a run.
type Message struct {
	// State is the message's state before the attempt: State.Attempt() is its number, State.Trace the traceparent of the
	// attempt before.
	State redeliver.State
	// Headers are the user's, as the producer wrote them. Nil if the message cannot be read.
	Headers redeliver.Headers
}

// End says how a run ended.
type End struct {
	Outcome Outcome
	// State is the message's state after the policy's decision; nil if the policy was not asked. It must not be kept or
	// changed.
	State *redeliver.State
	// Err is the failure; nil for a success.
	Err error
}

// Outcome says how a run ended.
type Outcome string

// The outcomes. OutcomeDeadLettered and OutcomeDiscarded are final failures.
const (
	OutcomeSucceeded    Outcome = "succeeded"
	OutcomeRetried      Outcome = "retried"       // it runs again, at once or later
	OutcomePostponed    Outcome = "postponed"     // put aside; no attempt was counted
	OutcomeDeadLettered Outcome = "dead-lettered" // State.Reason says why
	OutcomeDiscarded    Outcome = "discarded"     // as dead-lettered, but there is no DLQ
	OutcomeAbandoned    Outcome = "abandoned"     // the session has ended: the message comes back, and the attempt does not count
	OutcomeSettled      Outcome = "settled"       // the handler has acked or nacked the message itself
	OutcomeGathered     Outcome = "gathered"      // it waits for a batch, which has its own run
	OutcomeAnswered     Outcome = "answered"      // a batch function ended: each message has its own answer
)

// DeadLetter is a message that was written to the DLQ.
type DeadLetter struct {
	// Message has the state that was written: State.Reason says why, State.Trace is the traceparent of the failed attempt, if
	// there was one.
	Message Message
	// Where is the DLQ.
	Where string
	// Began is the time of the decision.
	Began time.Time
	// Err is the failure.
	Err error
}

package tracing

import (
	"context"

	"github.com/redeliver/redeliver"
)

// FirstTracer is a Tracer with a faster way for first attempts, which is all that most messages have: no Run is made, and the
// names of the subscription are looked up once. Without it a message in observe/otel's BenchmarkObserved/tracer takes 1.7 times as
// long.
type FirstTracer interface {
	Tracer
	// First returns the FirstRuns of a subscription, which replace Begin for single messages that come for the first time: their
	// State has only ID, Origin, Group, Source and Expires. Begin is called for all other messages, for batches, and where First
	// returns nil. of is the Tracer on which First is called. A Tracer that embeds another one inherits its First, which would
	// bypass the outer Begin: so First returns nil where of is not its receiver. It is called when the first message comes,
	// perhaps more than once, and from many goroutines.
	First(of Tracer, origin, group string) FirstRuns
}

// FirstRuns begins the spans of one subscription's first attempts. The rules of [Tracer] apply.
type FirstRuns interface {
	// Begin is like Tracer.Begin. run must not be kept.
	Begin(ctx context.Context, run *FirstRun) (context.Context, Span)
}

// FirstRun is the first attempt of a message.
type FirstRun struct {
	// Source is as in State.
	Source redeliver.Source
	// Headers are as in Message.
	Headers redeliver.Headers
	// Message returns the whole State. That has a cost: an id may have to be composed.
	Message interface{ State() redeliver.State }
}

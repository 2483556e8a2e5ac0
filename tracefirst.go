package redeliver

import "context"

// FirstTracer is a Tracer that needs less for the first attempt of a message, which most
// messages have only: no TracedRun is made for it, and what all of a subscription's have
// in common is looked up once. Without it a message in BenchmarkObserved/tracer of package
// observe/otel, which has the goroutine of its own that a Router gives it, takes 1.7 times as long.
type FirstTracer interface {
	Tracer
	// First returns what is called in the place of Begin for the messages of a
	// subscription that come for the first time, one by one: their State has nothing but ID,
	// Origin, Group, Source and Expires. For all others, and for batches, Begin is called;
	// and for all where First returns nil. of is the Tracer that is asked: one that embeds
	// another has its First, too, which returns nil where of is not itself, so that the
	// outer Begin is called. It is asked when the first message comes, maybe more than once,
	// and from many goroutines.
	First(of Tracer, origin, group string) FirstRuns
}

// FirstRuns begins the spans of one subscription's first attempts. All that is said of
// [Tracer] holds here, too.
type FirstRuns interface {
	// Begin is as a Tracer's. run must not be kept.
	Begin(ctx context.Context, run *FirstRun) (context.Context, Span)
}

// FirstRun is a message that a handler is called for, for the first time.
type FirstRun struct {
	// Source is as in State.
	Source Source
	// Headers are as in TracedMessage.
	Headers Headers
	// Message has the rest of its State: to ask for it costs something, an id that must
	// be composed for example.
	Message interface{ State() State }
}

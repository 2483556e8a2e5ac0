package otel_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/tracing"
	"github.com/redeliver/redeliver/observe/otel"
)

// louder and wider are what a user makes of ours by embedding, with a method of their own.
type louder struct {
	*otel.Sink

	told int
}

func (l *louder) Event(e redeliver.Event) {
	l.told++
	l.Sink.Event(e)
}

type wider struct{ *otel.Tracer }

func (w wider) Begin(ctx context.Context, run *tracing.Run) (context.Context, tracing.Span) {
	return w.Tracer.Begin(ctx, run)
}

// A sink that embedded ours inherited its Tally and its First, and was no longer called for messages that
// succeed at once.
func TestWhoEmbedsOursIsCalled(t *testing.T) {
	sink, err := otel.New(otel.Config{System: "kafka"})
	if err != nil {
		t.Fatal(err)
	}
	outer := &louder{Sink: sink}
	if tally, rest := outer.Tally(outer, "orders", "billing"); tally != nil || rest != redeliver.Sink(outer) {
		t.Errorf("%v counts for it, and %v is told", tally, rest)
	}
	if tally, rest := sink.Tally(sink, "orders", "billing"); tally == nil || rest != nil {
		t.Errorf("%v counts for itself, and %v is told", tally, rest)
	}
	tally, rest := redeliver.Sinks(outer, sink).(redeliver.Tallying).Tally(nil, "orders", "billing")
	if rest == nil || tally == nil {
		t.Fatal("in a list one counts and the other is told")
	}
	if rest.Event(redeliver.Committed{}); outer.told != 1 {
		t.Errorf("in a list it is told %d times", outer.told)
	}

	tracer, err := otel.NewTracer(otel.TracerConfig{System: "kafka", TracerProvider: trace.NewTracerProvider()})
	if err != nil {
		t.Fatal(err)
	}
	if w := (wider{tracer}); w.First(w, "orders", "billing") != nil || tracer.First(tracer, "orders", "billing") == nil {
		t.Error("first attempts go past the outer Begin, or have nothing of their own")
	}
}

package otel

import (
	"context"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/tracing"
)

var _ tracing.FirstTracer = (*Tracer)(nil)

// First implements [tracing.FirstTracer].
func (t *Tracer) First(of tracing.Tracer, origin, group string) tracing.FirstRuns {
	if of != tracing.Tracer(t) {
		return nil
	}
	return &firstRuns{t, t.places.of(place{origin, group})}
}

// firstRuns begins the spans of first attempts.
type firstRuns struct {
	t *Tracer
	p *consumer
}

// Begin implements [tracing.FirstRuns]. Most spans are not sampled, so what only those
// need that are comes after it has begun.
func (f *firstRuns) Begin(ctx context.Context, run *tracing.FirstRun) (context.Context, tracing.Span) {
	s := &span{headers: carrier{run.Headers}, retriesAreErrors: f.t.cfg.RetriesAreErrors}
	if f.t.asks.none(run.Headers) {
		ctx = f.begin(ctx, s, run)
	} else {
		ctx = f.published(ctx, s, run)
	}
	return ctx, s
}

// begin begins the span of a message that names no publisher.
func (f *firstRuns) begin(ctx context.Context, s *span, run *tracing.FirstRun) context.Context {
	o := f.p.start(run.Source.Known, run.Source.Partition)
	if f.t.cfg.Parent || isRoot(ctx) {
		ctx, s.Span = f.t.tracer.Start(ctx, f.p.name, o.child...)
	} else {
		ctx, s.Span = f.t.tracer.Start(ctx, f.p.name, o.root...)
	}
	if s.IsRecording() {
		f.tell(s, run)
	}
	return ctx
}

// isRoot reports whether a span begins a trace there anyway.
func isRoot(ctx context.Context) bool { return !trace.SpanContextFromContext(ctx).IsValid() }

// published begins the span of a message that may name its publisher.
func (f *firstRuns) published(came context.Context, s *span, run *tracing.FirstRun) context.Context {
	ctx, published := f.t.published(came, &s.headers)
	switch {
	case published.IsSampled(): // by which a sampler may decide, too
		st := run.Message.State()
		ctx, s.Span = f.t.tracer.Start(ctx, f.p.name, f.t.whole(ctx, f.p, &st, published, trace.SpanContext{})...)
		return ctx
	case published.IsValid() && !f.t.cfg.Parent && baggage.FromContext(ctx).Len() == 0:
		ctx = came // which names no publisher: to be a root costs nothing there
	}
	ctx = f.begin(ctx, s, run)
	if s.IsRecording() && published.IsValid() && !f.t.cfg.Parent {
		s.AddLink(link(published, linkPublished))
	}
	return ctx
}

// tell gives a span that records what it has begun without.
func (f *firstRuns) tell(s *span, run *tracing.FirstRun) {
	s.SetAttributes(attrMessageID.String(run.Message.State().ID))
	if f.t.cfg.System == "kafka" && run.Source.Known {
		s.SetAttributes(attrKafkaOff.Int64(run.Source.Offset))
	}
}

// start is how the span of a message from a partition begins.
func (p *consumer) start(known bool, partition int32) *start {
	if !known {
		return p.first.of(nowhere)
	}
	return p.first.of(int64(partition))
}

// told is a message whose state is there.
type told struct{ m *tracing.Message }

func (m told) State() redeliver.State { return m.m.State }

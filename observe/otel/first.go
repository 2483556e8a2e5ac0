package otel

import (
	"context"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/redeliver/redeliver"
)

var _ redeliver.FirstTracer = (*Tracer)(nil)

// First implements [redeliver.FirstTracer].
func (t *Tracer) First(origin, group string) redeliver.FirstRuns {
	return firstRuns{t, t.places.of(place{origin, group})}
}

// firstRuns begins the spans of first attempts.
type firstRuns struct {
	t *Tracer
	p *consumer
}

// Begin implements [redeliver.FirstRuns].
func (f firstRuns) Begin(ctx context.Context, run redeliver.FirstRun) (context.Context, redeliver.Span) {
	return f.t.first(ctx, f.p, &run)
}

// told is a message whose state is there.
type told struct{ m *redeliver.TracedMessage }

func (m told) State() redeliver.State { return m.m.State }

// first begins the span of a first attempt. Most are not sampled, so what only those need
// that are comes after it has begun.
func (t *Tracer) first(ctx context.Context, p *consumer, run *redeliver.FirstRun) (context.Context, redeliver.Span) {
	s := &span{headers: carrier{run.Headers}, retriesAreErrors: t.cfg.RetriesAreErrors}
	came := ctx
	ctx, published := t.published(ctx, &s.headers)
	if published.IsSampled() { // by which a sampler may decide, too
		st := run.Message.State()
		ctx, s.Span = t.tracer.Start(ctx, p.name, t.whole(ctx, p, &st, published, trace.SpanContext{})...)
		return ctx, s
	}
	o := p.start(&run.Source)
	if published.IsValid() && !t.cfg.Parent && baggage.FromContext(ctx).Len() == 0 {
		ctx = came // which names no publisher: to be a root costs nothing there
	}
	if t.cfg.Parent || !trace.SpanContextFromContext(ctx).IsValid() { // the latter is a root anyway
		ctx, s.Span = t.tracer.Start(ctx, p.name, o.child...)
	} else {
		ctx, s.Span = t.tracer.Start(ctx, p.name, o.root...)
	}
	if s.IsRecording() {
		t.tell(s, run, published)
	}
	return ctx, s
}

// tell gives a span that records what it has begun without.
func (t *Tracer) tell(s *span, run *redeliver.FirstRun, published trace.SpanContext) {
	s.SetAttributes(attrMessageID.String(run.Message.State().ID))
	if t.cfg.System == "kafka" && run.Source.Known {
		s.SetAttributes(attrKafkaOff.Int64(run.Source.Offset))
	}
	if published.IsValid() && !t.cfg.Parent {
		s.AddLink(link(published, linkPublished))
	}
}

// start is how the span of a message from there begins.
func (p *consumer) start(from *redeliver.Source) *start {
	partition := int64(nowhere)
	if from.Known {
		partition = int64(from.Partition)
	}
	return p.first.of(partition)
}

package otel

import (
	"context"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/redeliver/redeliver/observe"
)

// beginFirst begins the span of a message's first attempt. Most spans are not sampled, so attributes that only sampled spans
// need are added after the beginning.
func (t *Tracer) beginFirst(ctx context.Context, p *consumer, m *observe.Message) (context.Context, observe.Span) {
	s := &span{headers: carrier{m.Headers}, retriesAreErrors: t.cfg.RetriesAreErrors}
	if t.asksFor.findNothing(m.Headers) {
		ctx = t.beginUnlinked(ctx, p, s, m)
	} else {
		ctx = t.beginPublished(ctx, p, s, m)
	}
	return ctx, s
}

// beginUnlinked begins the span of a message that names no publisher.
func (t *Tracer) beginUnlinked(ctx context.Context, p *consumer, s *span, m *observe.Message) context.Context {
	source := &m.State.Source
	o := p.firstOptions(source.Known, source.Partition)
	if t.cfg.Parent || isRoot(ctx) {
		ctx, s.Span = t.tracer.Start(ctx, p.name, o.child...)
	} else {
		ctx, s.Span = t.tracer.Start(ctx, p.name, o.root...)
	}
	if s.IsRecording() { // add the attributes with which it did not begin
		s.SetAttributes(attrMessageID.String(m.State.ID))
		if t.cfg.System == "kafka" && source.Known {
			s.SetAttributes(attrKafkaOff.Int64(source.Offset))
		}
	}
	return ctx
}

// isRoot reports whether a span that begins in ctx is a root in any case.
func isRoot(ctx context.Context) bool { return !trace.SpanContextFromContext(ctx).IsValid() }

// beginPublished begins the span of a message that may name its publisher.
func (t *Tracer) beginPublished(came context.Context, p *consumer, s *span, m *observe.Message) context.Context {
	ctx, published := t.published(came, &s.headers)
	switch {
	case published.IsSampled(): // a sampler may decide by it, too
		ctx, s.Span = t.tracer.Start(ctx, p.name, t.allOptions(ctx, p, &m.State, published, trace.SpanContext{})...)
		return ctx
	case published.IsValid() && !t.cfg.Parent && baggage.FromContext(ctx).Len() == 0:
		ctx = came // ctx adds only the publisher, which a root does not need
	}
	ctx = t.beginUnlinked(ctx, p, s, m)
	if s.IsRecording() && published.IsValid() && !t.cfg.Parent {
		s.AddLink(link(published, linkPublished))
	}
	return ctx
}

// firstOptions returns the options of the first span of a message from a partition.
func (p *consumer) firstOptions(known bool, partition int32) *startOptions {
	if !known {
		return p.first.of(noPartition)
	}
	return p.first.of(int64(partition))
}

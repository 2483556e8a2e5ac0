package otel

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/tracing"
)

// The values of redeliver.link: the kinds of spans that a span is linked to.
var (
	linkPublished = []attribute.KeyValue{attrLink.String("published")} // the span that published the message
	linkPrevious  = []attribute.KeyValue{attrLink.String("previous")}  // the attempt before
)

func link(to trace.SpanContext, attrs []attribute.KeyValue) trace.Link {
	return trace.Link{SpanContext: to, Attributes: attrs}
}

// published is the span that published a message, by the message's own headers; not valid
// where they name none. The context has it, and whatever else the propagator finds (baggage).
func (t *Tracer) published(ctx context.Context, c *carrier) (context.Context, trace.SpanContext) {
	if c.Headers == nil {
		return ctx, trace.SpanContext{}
	}
	ctx = t.cfg.Propagator.Extract(ctx, c)
	if sc := trace.SpanContextFromContext(ctx); sc.IsRemote() {
		return ctx, sc
	}
	return ctx, trace.SpanContext{} // of this process: it is not from the headers
}

// carrier is a message's headers as a propagator reads them.
type carrier struct{ redeliver.Headers }

func (*carrier) Set(string, string) {} // what its producer wrote is the message's

// Keys implements [propagation.TextMapCarrier]. Propagators ask for names that they know.
func (*carrier) Keys() []string { return nil }

// batchLinks are the links of a batch: one for each message, to the span that published
// it, with what tells it from the others, and one to its attempt before. A message
// of which neither is known has none.
func (t *Tracer) batchLinks(ctx context.Context, run *tracing.Run) []trace.Link {
	links := make([]trace.Link, 0, len(run.Messages))
	none := trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	for i := range run.Messages {
		m := &run.Messages[i]
		_, published := t.published(none, &carrier{m.Headers})
		before := parse(m.State.Trace)
		if !published.IsValid() && !before.IsValid() {
			continue
		}
		attrs := t.message(make([]attribute.KeyValue, 0, perMessage+1), &m.State)
		attrs = slices.Clip(attrs)
		if published.IsValid() {
			links = append(links, link(published, append(attrs, linkPublished...)))
		}
		if before.IsValid() {
			links = append(links, link(before, append(attrs, linkPrevious...)))
		}
	}
	return links
}

const traceparent = "traceparent"

// parse is the span that State.Trace names; not valid where it names none.
func parse(name string) trace.SpanContext {
	if name == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: name})
	return trace.SpanContextFromContext(ctx)
}

package otel

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
)

// The values of redeliver.link: the kinds of spans that a span is linked to.
var (
	linkPublished = []attribute.KeyValue{attrLink.String("published")} // the span that published the message
	linkPrevious  = []attribute.KeyValue{attrLink.String("previous")}  // the previous attempt
)

func link(to trace.SpanContext, attrs []attribute.KeyValue) trace.Link {
	return trace.Link{SpanContext: to, Attributes: attrs}
}

// published returns the span that published a message, according to the message's own headers, or an invalid one if
// they name none. The context has it, and everything else that the propagator finds (baggage).
func (t *Tracer) published(ctx context.Context, c *carrier) (context.Context, trace.SpanContext) {
	if c.Headers == nil {
		return ctx, trace.SpanContext{}
	}
	ctx = t.cfg.Propagator.Extract(ctx, c)
	if sc := trace.SpanContextFromContext(ctx); sc.IsRemote() {
		return ctx, sc
	}
	return ctx, trace.SpanContext{} // the span in ctx is one of this process, not from the headers
}

// carrier gives a propagator a message's headers.
type carrier struct{ redeliver.Headers }

func (*carrier) Set(string, string) {} // redeliver does not change the producer's headers

// Keys implements [propagation.TextMapCarrier]. Propagators ask for names that they know.
func (*carrier) Keys() []string { return nil }

// batchLinks returns the links of a batch. For each message there is one to the span that published it, with attributes
// that identify the message, and one to its previous attempt. A message without known spans has none.
func (t *Tracer) batchLinks(ctx context.Context, run *observe.Run) []trace.Link {
	links := make([]trace.Link, 0, len(run.Messages))
	none := trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	for i := range run.Messages {
		m := &run.Messages[i]
		_, published := t.published(none, &carrier{m.Headers})
		before := parse(m.State.Trace)
		if !published.IsValid() && !before.IsValid() {
			continue
		}
		attrs := t.appendMessage(make([]attribute.KeyValue, 0, perMessage+1), &m.State)
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

// parse returns the span that State.Trace names, or an invalid one if it names none.
func parse(name string) trace.SpanContext {
	if name == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: name})
	return trace.SpanContextFromContext(ctx)
}

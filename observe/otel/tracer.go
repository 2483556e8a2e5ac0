package otel

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	api "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
)

// TracerConfig configures a [Tracer]. System is required.
type TracerConfig struct {
	// System is OpenTelemetry's name of the broker: kafka, rabbitmq, aws_sqs, or another one.
	System string
	// TracerProvider creates the spans. Default: OpenTelemetry's global one.
	TracerProvider trace.TracerProvider
	// Propagator reads the span that published a message from the message's own headers. Redeliver does not write such
	// headers. Default: OpenTelemetry's global one, which reads nothing until the service has set it.
	Propagator propagation.TextMapPropagator
	// Parent makes the span of a handler of single messages a child of the span that published the message. If the
	// message's headers name none, the parent is the span in the message's context. Then all attempts of a message are in
	// one trace, however long it waited between them. Default: each attempt is the root of a trace of its own, with links.
	Parent bool
	// RetriesAreErrors gives the status Error to attempts that will be retried, too. Default: only
	// dead-lettered messages have it.
	RetriesAreErrors bool
}

// Tracer puts spans around handlers. Set it as Config.Tracer of an adapter. It is safe for
// concurrent use, and one Tracer may serve many clients of one broker.
type Tracer struct {
	cfg     TracerConfig
	tracer  trace.Tracer
	places  cache[place, consumer]
	asksFor requestedHeaders
}

var _ observe.Tracer = (*Tracer)(nil)

// consumer has the attributes that all spans of a subscription share.
type consumer struct {
	name  string
	attrs []attribute.KeyValue // without spare capacity, so that append copies it
	first cache[int64, startOptions]
}

// startOptions has the options of the span of a first attempt, with the attributes by which samplers may decide. Most messages
// have no other attempt, and most spans are not sampled.
type startOptions struct{ child, root []trace.SpanStartOption }

// noPartition is the partition of a message that has none.
const noPartition = -1

// NewTracer returns a tracer. It returns an error for a TracerConfig without a System.
func NewTracer(cfg TracerConfig) (*Tracer, error) {
	if cfg.System == "" {
		return nil, errors.New(`otel: System is "": must be the broker: kafka, rabbitmq or aws_sqs`)
	}
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = api.GetTracerProvider()
	}
	if cfg.Propagator == nil {
		cfg.Propagator = api.GetTextMapPropagator()
	}
	t := &Tracer{cfg: cfg, tracer: cfg.TracerProvider.Tracer(scope), asksFor: requestedHeaders{propagator: cfg.Propagator}}
	t.places.make = func(p place) *consumer {
		attrs := append(subscription(cfg.System, p), attrOperation.String(opProcess), attrType.String(opProcess))
		c := &consumer{name: opProcess + " " + p.origin, attrs: slices.Clip(attrs)}
		c.first.make = func(partition int64) *startOptions {
			attrs := slices.Concat(c.attrs, []attribute.KeyValue{attrAttempt.Int(1)})
			if partition != noPartition {
				attrs = append(attrs, attrPartition.String(strconv.FormatInt(partition, 10)))
			}
			with := trace.WithAttributes(attrs...)
			return &startOptions{[]trace.SpanStartOption{kinds.consumer, with}, []trace.SpanStartOption{kinds.consumer, with, trace.WithNewRoot()}}
		}
		return c
	}
	return t, nil
}

// Begin implements [tracing.Tracer].
func (t *Tracer) Begin(ctx context.Context, run *observe.Run) (context.Context, observe.Span) {
	p := t.places.of(place{run.Origin, run.Group})
	if run.Batch {
		return t.beginBatch(ctx, p, run)
	}
	m := &run.Messages[0]
	before := parse(m.State.Trace)
	if m.State.Attempts == 0 && m.State.Replays == 0 && !before.IsValid() {
		return t.beginFirst(ctx, p, m)
	}
	s := &span{headers: carrier{m.Headers}, retriesAreErrors: t.cfg.RetriesAreErrors}
	ctx, published := t.published(ctx, &s.headers)
	ctx, s.Span = t.tracer.Start(ctx, p.name, t.allOptions(ctx, p, &m.State, published, before)...)
	return ctx, s
}

// allOptions returns the options of a span, with all its attributes.
func (t *Tracer) allOptions(ctx context.Context, p *consumer, st *redeliver.State, published, before trace.SpanContext) []trace.SpanStartOption {
	attrs := append(make([]attribute.KeyValue, 0, len(p.attrs)+perMessage), p.attrs...)
	o := append(make([]trace.SpanStartOption, 0, 4), kinds.consumer, trace.WithAttributes(t.appendMessage(attrs, st)...))
	links := make([]trace.Link, 0, 2)
	if !t.cfg.Parent {
		if trace.SpanContextFromContext(ctx).IsValid() {
			o = append(o, trace.WithNewRoot())
		}
		if published.IsValid() {
			links = append(links, link(published, linkPublished))
		}
	}
	if before.IsValid() {
		links = append(links, link(before, linkPrevious))
	}
	if len(links) > 0 {
		o = append(o, trace.WithLinks(links...))
	}
	return o
}

// beginBatch begins the span of a batch function. It is a root, because it has many publishers.
func (t *Tracer) beginBatch(ctx context.Context, p *consumer, run *observe.Run) (context.Context, observe.Span) {
	o := []trace.SpanStartOption{kinds.consumer, trace.WithNewRoot(), trace.WithAttributes(append(p.attrs, attrBatchCount.Int(len(run.Messages)))...)}
	if links := t.batchLinks(ctx, run); len(links) > 0 {
		o = append(o, trace.WithLinks(links...))
	}
	ctx, s := t.tracer.Start(ctx, p.name, o...)
	return ctx, &span{Span: s, retriesAreErrors: t.cfg.RetriesAreErrors}
}

// perMessage is the maximum number of attributes that appendMessage adds.
const perMessage = 5

// appendMessage appends the attributes that identify a message.
func (t *Tracer) appendMessage(to []attribute.KeyValue, st *redeliver.State) []attribute.KeyValue {
	to = append(to, attrMessageID.String(st.ID), attrAttempt.Int(st.Attempt()))
	if st.Source.Known {
		to = append(to, attrPartition.String(strconv.Itoa(int(st.Source.Partition))))
		if t.cfg.System == "kafka" {
			to = append(to, attrKafkaOff.Int64(st.Source.Offset))
		}
	}
	if st.Replays > 0 {
		to = append(to, attrReplays.Int(st.Replays))
	}
	return to
}

// DeadLettered implements [tracing.Tracer]. It creates a span of its own, with the status Error. The span is a child of
// the failed attempt, and begins when that ended.
func (t *Tracer) DeadLettered(ctx context.Context, b *observe.DeadLetter) {
	st := &b.Message.State
	attrs := []attribute.KeyValue{
		attrSystem.String(t.cfg.System), attrOperation.String(opDeadLetter), attrType.String(typeSend), attrDest.String(b.Where),
		attrOrigin.String(st.Origin), attrGroup.String(st.Group), attrMessageID.String(st.ID), attrReason.String(string(st.Reason)),
		attribute.Int("redeliver.attempts", st.Attempts), attrErrorType.String(errorType(st)),
	}
	if st.FirstError != "" {
		attrs = append(attrs, attrFirstErr.String(st.FirstError))
	}
	if st.Replays > 0 {
		attrs = append(attrs, attrReplays.Int(st.Replays))
	}
	o := []trace.SpanStartOption{kinds.producer, trace.WithTimestamp(b.Began), trace.WithAttributes(attrs...)}
	var links []trace.Link
	before, ours := parse(st.Trace), trace.SpanContextFromContext(ctx)
	if child := before.IsValid() && before.SpanID() == ours.SpanID(); !child { // no attempt ran here
		o = append(o, trace.WithNewRoot())
		if before.IsValid() {
			links = append(links, link(before, linkPrevious))
		}
	}
	detached := trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	if _, published := t.published(detached, &carrier{b.Message.Headers}); published.IsValid() {
		links = append(links, link(published, linkPublished))
	}
	_, s := t.tracer.Start(ctx, opDeadLetter+" "+b.Where, append(o, trace.WithLinks(links...))...)
	setError(s, st)
	s.End(trace.WithTimestamp(time.Now()))
}

package engine

import (
	"context"
	"sync/atomic"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
)

// handlerSpan is the span of one run of a handler.
type handlerSpan struct {
	ctx   context.Context // the parent of the handler's context
	span  observe.Span    // nil for none
	ended atomic.Bool
}

// BeginSpan begins a span for the handler of d, and returns a context below ctx that has the span. If the message fails, the span
// ends with the failure; otherwise the caller calls EndSpan. Without a tracer BeginSpan returns ctx.
func (d *Delivery) BeginSpan(ctx context.Context) context.Context {
	if d.sub.Tracer == nil {
		return ctx
	}
	headers, _ := d.describe()
	one := &struct { // one allocation
		handlerSpan
		run observe.Run
		all [1]observe.Message
	}{}
	d.readState(&one.all[0].State)
	one.all[0].Headers = headers
	one.run = observe.Run{Origin: d.sub.Origin, Group: d.sub.Group, Messages: one.all[:]}
	one.ctx, one.span = d.sub.span(ctx, &one.run)
	d.span.Store(&one.handlerSpan)
	return one.ctx
}

// span asks the tracer for a span. If the tracer panics, it returns ctx and no span.
func (s *Subscription) span(ctx context.Context, run *observe.Run) (below context.Context, span observe.Span) {
	defer func() {
		if recover() != nil || below == nil {
			below, span = ctx, nil
		}
	}()
	return s.Tracer.Begin(ctx, run)
}

// end ends the span, once.
func (t *handlerSpan) end(e observe.End) {
	if t.span == nil || t.ended.Swap(true) {
		return
	}
	defer func() { _ = recover() }()
	t.span.End(e)
}

// traceparent returns the traceparent of the span; "" means none.
func (t *handlerSpan) traceparent() (name string) {
	if t.span == nil {
		return ""
	}
	defer func() { _ = recover() }()
	return t.span.Traceparent()
}

// EndSpan ends the span of an attempt that the policy does not decide about.
func (d *Delivery) EndSpan(o observe.Outcome, err error) {
	if t := d.span.Load(); t != nil {
		t.end(observe.End{Outcome: o, Err: err})
	}
}

// endFailedSpan ends the span of an attempt that has failed, and puts its traceparent into the message's state.
func (d *Delivery) endFailedSpan(dec *redeliver.Decision, cause error) {
	t := d.span.Load()
	if t == nil {
		return
	}
	if name := t.traceparent(); name != "" {
		dec.State.Trace = name
	}
	e := observe.End{Outcome: observe.OutcomeRetried, State: &dec.State, Err: cause}
	switch dec.Action {
	case redeliver.ActionDeadLetter:
		e.Outcome = observe.OutcomeDeadLettered
		if d.sub.Discards {
			e.Outcome = observe.OutcomeDiscarded
		}
	case redeliver.ActionPostpone:
		e.Outcome = observe.OutcomePostponed
	default: // it runs again
	}
	t.end(e)
}

// traceDeadLetter reports to the tracer that the message is in the DLQ.
func (d *Delivery) traceDeadLetter(dec *redeliver.Decision, where string, cause error) {
	b := &observe.DeadLetter{Where: where, Began: dec.State.LastFailed, Err: cause}
	b.Message.State = dec.State
	ctx := context.Background()
	if d.sub.Values != nil {
		ctx = d.sub.Values
	}
	if t := d.span.Load(); t != nil {
		ctx = t.ctx
	}
	b.Message.Headers = d.entry.headers() // a stuck handler may still write to those of its own form
	defer func() { _ = recover() }()
	d.sub.Tracer.DeadLettered(context.WithoutCancel(ctx), b)
}

// RecordBatches records that the handler of d gathers batches. From then on batch functions have spans, and handlers do
// not. RecordBatches also ends the span that the handler of d may have.
func (d *Delivery) RecordBatches() {
	if d.sub.Tracer == nil {
		return
	}
	if !d.sub.gathers.Load() { // a load is cheaper than a store
		d.sub.gathers.Store(true)
	}
	d.EndSpan(observe.OutcomeGathered, nil)
}

// beginSpan begins the span of a batch function, and returns the parent of the function's context.
func (b *Batch) beginSpan(ctx context.Context, all []*Batched) context.Context {
	sub := b.queue.sub
	if sub == nil || sub.Tracer == nil {
		return ctx
	}
	run := &observe.Run{Origin: b.Origin, Group: b.Group, Batch: true, Messages: make([]observe.Message, len(all))}
	for i, m := range all { // none is nil: the queue belongs to their subscription
		run.Messages[i].State = m.d.State()
		run.Messages[i].Headers, _ = m.d.describe()
	}
	batchSpan := &handlerSpan{}
	batchSpan.ctx, batchSpan.span = sub.span(ctx, run)
	b.span.Store(batchSpan)
	for _, m := range all {
		t := &handlerSpan{ctx: batchSpan.ctx, span: batchSpan.span}
		t.ended.Store(true) // the batch ends it
		m.d.span.Store(t)
	}
	return batchSpan.ctx
}

// endSpan ends the span of the batch function.
func (b *Batch) endSpan(err error) {
	if t := b.span.Load(); t != nil {
		t.end(observe.End{Outcome: observe.OutcomeAnswered, Err: err})
	}
}

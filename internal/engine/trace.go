package engine

import (
	"context"
	"sync/atomic"

	"github.com/redeliver/redeliver"
)

// traced is the latest run of a message's handler as a tracer has it. The first
// delivery of a message keeps it, whichever the attempt is of; without a tracer there is
// none, and a message that succeeds pays for no more than to see that.
type traced struct {
	ctx   context.Context // that the handler's is below
	span  redeliver.Span  // nil for none
	ended atomic.Bool
}

// BeginSpan begins a span for a message that no attempt runs, where the subscription has a tracer, and returns the context
// below it. EndSpan ends it, unless a failure of the message does.
func (d *Delivery) BeginSpan(ctx context.Context) context.Context {
	if d.sub.Tracer == nil {
		return ctx
	}
	return d.beginSpan(ctx)
}

// EndSpan ends the span of a message about which no policy is asked.
func (d *Delivery) EndSpan(o redeliver.Outcome, err error) { d.endSpan(o, err) }

// beginSpan has the subscription's tracer, of which there must be one, begin a span for the handler of d, and returns the
// context that the handler gets: outer, or one below it.
func (d *Delivery) beginSpan(outer context.Context) context.Context {
	headers, _ := d.describe()
	if f := d.sub.firstRuns(); f != nil && d.isFirst() {
		return d.beginFirst(outer, f, headers)
	}
	again := &struct {
		traced
		run redeliver.TracedRun
		all [1]redeliver.TracedMessage
	}{}
	again.all[0] = redeliver.TracedMessage{State: d.State(), Headers: headers}
	again.run = redeliver.TracedRun{Origin: d.sub.Origin, Group: d.sub.Group, Messages: again.all[:]}
	again.ctx, again.span = d.sub.span(outer, &again.run)
	d.span.Store(&again.traced)
	return again.ctx
}

// span asks the tracer for a span. One that panics has none.
func (s *Subscription) span(ctx context.Context, run *redeliver.TracedRun) (below context.Context, span redeliver.Span) {
	defer func() {
		if recover() != nil || below == nil {
			below, span = ctx, nil
		}
	}()
	return s.Tracer.Begin(ctx, run)
}

// end ends the span, once.
func (t *traced) end(e redeliver.RunEnd) {
	if t.span == nil || t.ended.Swap(true) {
		return
	}
	defer func() { _ = recover() }()
	t.span.End(e)
}

// traceparent names the run. It is "" where nobody can.
func (t *traced) traceparent() (name string) {
	if t.span == nil {
		return ""
	}
	defer func() { _ = recover() }()
	return t.span.Traceparent()
}

// endSpan ends the span of the attempt, where there is one that has not ended and no policy was asked.
func (d *Delivery) endSpan(o redeliver.Outcome, err error) {
	if t := d.span.Load(); t != nil {
		t.end(redeliver.RunEnd{Outcome: o, Err: err})
	}
}

// decided ends the span of the attempt that has failed, and has its name travel with the
// message.
func (d *Delivery) decided(dec *redeliver.Decision, cause error) {
	t := d.span.Load()
	if t == nil {
		return
	}
	if name := t.traceparent(); name != "" {
		dec.State.Trace = name
	}
	e := redeliver.RunEnd{Outcome: redeliver.OutcomeRetried, State: &dec.State, Err: cause}
	switch dec.Action {
	case redeliver.DeadLetter:
		e.Outcome = redeliver.OutcomeDeadLettered
		if d.sub.Discards {
			e.Outcome = redeliver.OutcomeDiscarded
		}
	case redeliver.Postponed:
		e.Outcome = redeliver.OutcomePostponed
	default: // it runs again
	}
	t.end(e)
}

// traceDeadLetter tells the tracer that the message rests in the DLQ.
func (d *Delivery) traceDeadLetter(dec *redeliver.Decision, where string, cause error) {
	b := &redeliver.Burial{Where: where, Began: dec.State.LastFailed, Err: cause}
	b.Message.State = dec.State
	ctx := context.Background()
	if d.sub.Values != nil {
		ctx = d.sub.Values
	}
	if t := d.span.Load(); t != nil {
		ctx = t.ctx
	}
	if msg, err := d.c.newMessage(); err == nil { // its own: a handler that is out of time may still write to what it got
		b.Message.Headers = msg.Metadata
	}
	defer func() { _ = recover() }()
	d.sub.Tracer.DeadLettered(context.WithoutCancel(ctx), b)
}

// Gathers says that the handler has d wait for a batch: from then on the subscription's
// runs are those of batch functions, see Batch. The span of the handler's own, which the
// first messages of a subscription have, ends here.
func (d *Delivery) Gathers() {
	if d.sub.Tracer == nil {
		return
	}
	if !d.sub.gathers.Load() { // as a rule: others read it at the same time
		d.sub.gathers.Store(true)
	}
	d.endSpan(redeliver.OutcomeGathered, nil)
}

// beginSpan has the tracer begin the span of a batch function, and returns the context
// that the function's is to be below.
func (b *Batch) beginSpan(ctx context.Context, all []*Batched) context.Context {
	sub := b.queue.sub
	if sub == nil || sub.Tracer == nil {
		return ctx
	}
	run := &redeliver.TracedRun{Origin: b.Origin, Group: b.Group, Batch: true, Messages: make([]redeliver.TracedMessage, len(all))}
	for i, m := range all { // all have a delivery: the queue is their subscription's
		run.Messages[i].State = m.d.State()
		run.Messages[i].Headers, _ = m.d.describe()
	}
	of := &traced{}
	of.ctx, of.span = sub.span(ctx, run)
	b.span.Store(of)
	for _, m := range all {
		t := &traced{ctx: of.ctx, span: of.span}
		t.ended.Store(true) // it is the batch's to end
		m.d.span.Store(t)
	}
	return of.ctx
}

// endSpan ends the span of the function.
func (b *Batch) endSpan(err error) {
	if t := b.span.Load(); t != nil {
		t.end(redeliver.RunEnd{Outcome: redeliver.OutcomeAnswered, Err: err})
	}
}

package engine

import (
	"context"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/tracing"
)

// firsts has the FirstRuns of a subscription's tracer, nil where it has none.
type firsts struct{ runs tracing.FirstRuns }

// firstRuns asks the tracer with the first message. The subscription must have a tracer.
func (s *Subscription) firstRuns() tracing.FirstRuns {
	if f := s.firsts.Load(); f != nil {
		return f.runs
	}
	f := new(firsts)
	if t, ok := s.Tracer.(tracing.FirstTracer); ok {
		func() {
			defer func() { _ = recover() }() // a tracer that panics has none
			f.runs = t.First(s.Tracer, s.Origin, s.Group)
		}()
	}
	s.firsts.CompareAndSwap(nil, f)
	return s.firsts.Load().runs
}

// beginFirst is beginSpan for a message that comes for the first time. Its state, which is large, is made only when the tracer
// asks for it.
func (d *Delivery) beginFirst(outer context.Context, f tracing.FirstRuns, headers redeliver.Headers) context.Context {
	first := &struct {
		traced
		run tracing.FirstRun
	}{run: tracing.FirstRun{Source: d.State().Source, Headers: headers, Message: d}}
	first.begin(outer, f, &first.run)
	d.span.Store(&first.traced)
	return first.ctx
}

// begin is Subscription.span for beginFirst.
func (t *traced) begin(ctx context.Context, f tracing.FirstRuns, run *tracing.FirstRun) {
	defer func() {
		if recover() != nil || t.ctx == nil {
			t.ctx, t.span = ctx, nil
		}
	}()
	t.ctx, t.span = f.Begin(ctx, run)
}

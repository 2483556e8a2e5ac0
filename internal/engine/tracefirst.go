package engine

import (
	"context"

	"github.com/redeliver/redeliver"
)

// firsts is what begins the spans of a subscription's messages that come for the first
// time, nil where the tracer has nothing of its own for them.
type firsts struct{ runs redeliver.FirstRuns }

// firstRuns are asked for with the first message. There must be a tracer.
func (s *Subscription) firstRuns() redeliver.FirstRuns {
	if f := s.firsts.Load(); f != nil {
		return f.runs
	}
	f := new(firsts)
	if t, ok := s.Tracer.(redeliver.FirstTracer); ok {
		func() {
			defer func() { _ = recover() }() // one that panics is as none
			f.runs = t.First(s.Tracer, s.Origin, s.Group)
		}()
	}
	s.firsts.CompareAndSwap(nil, f)
	return s.firsts.Load().runs
}

// beginFirst is beginSpan for a message that comes for the first time. Its state, which is large, is made only when the
// tracer asks for it.
func (d *Delivery) beginFirst(outer context.Context, f redeliver.FirstRuns, headers redeliver.Headers) context.Context {
	first := &struct {
		traced
		run redeliver.FirstRun
	}{run: redeliver.FirstRun{Source: d.State().Source, Headers: headers, Message: d}}
	first.begin(outer, f, &first.run)
	d.span.Store(&first.traced)
	return first.ctx
}

// begin is Subscription.span for beginFirst.
func (t *traced) begin(ctx context.Context, f redeliver.FirstRuns, run *redeliver.FirstRun) {
	defer func() {
		if recover() != nil || t.ctx == nil {
			t.ctx, t.span = ctx, nil
		}
	}()
	t.ctx, t.span = f.Begin(ctx, run)
}

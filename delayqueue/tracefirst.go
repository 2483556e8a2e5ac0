package delayqueue

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
	return s.findFirsts()
}

//go:noinline
func (s *Subscription) findFirsts() redeliver.FirstRuns {
	f := new(firsts)
	if t, ok := s.Tracer.(redeliver.FirstTracer); ok {
		func() {
			defer func() { _ = recover() }() // one that panics is as none
			f.runs = t.First(s.Origin, s.Group)
		}()
	}
	s.firsts.CompareAndSwap(nil, f)
	return s.firsts.Load().runs
}

// beginFirst is BeginSpan for a message that comes for the first time. Its state, which
// is large, is made only when the tracer asks for it.
func (d *Delivery) beginFirst(f redeliver.FirstRuns, outer context.Context, headers redeliver.Headers) context.Context {
	t := new(traced)
	t.ctx, t.span = firstSpan(f, outer, d, headers)
	d.span.Store(t)
	return t.ctx
}

// firstSpan is Subscription.span for beginFirst.
func firstSpan(f redeliver.FirstRuns, ctx context.Context, d *Delivery, headers redeliver.Headers) (below context.Context, span redeliver.Span) {
	defer func() {
		if recover() != nil || below == nil {
			below, span = ctx, nil
		}
	}()
	return f.Begin(ctx, redeliver.FirstRun{Source: d.Source, Headers: headers, Message: d})
}

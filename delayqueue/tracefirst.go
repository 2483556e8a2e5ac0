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
			f.runs = t.First(s.Tracer, s.Origin, s.Group)
		}()
	}
	s.firsts.CompareAndSwap(nil, f)
	return s.firsts.Load().runs
}

// beginFirst is BeginSpan for a message that comes for the first time. Its state, which
// is large, is made only when the tracer asks for it.
func (d *Delivery) beginFirst(outer context.Context, f redeliver.FirstRuns, headers redeliver.Headers) context.Context {
	first := &struct {
		traced
		run redeliver.FirstRun
	}{run: redeliver.FirstRun{Source: d.Source, Headers: headers, Message: d}}
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

// roomForSpan has the stack grow once, here, where there is little on it to be moved, and
// not twice in the depths of a tracer. With a Router each message has a goroutine of its
// own, and this was half of what a span that is not sampled costs.
//
//go:noinline
func roomForSpan(never bool) {
	if never { // it is there for its frame
		var room [2 << 10]byte
		fill(room[:])
	}
}

//go:noinline
func fill(b []byte) { clear(b) }

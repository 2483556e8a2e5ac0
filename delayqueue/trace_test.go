package delayqueue_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

const (
	firstRun  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	secondRun = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
)

// tracing is a tracer that writes into a broker's log. Each run has the next name.
type tracing struct {
	b     *broker
	names []string
	runs  []redeliver.TracedRun
	ends  []redeliver.RunEnd
	dead  []redeliver.Burial
}

type runKey struct{}

func (tr *tracing) note(line string) {
	tr.b.mu.Lock()
	defer tr.b.mu.Unlock()
	tr.b.log = append(tr.b.log, line)
}

func (tr *tracing) Begin(ctx context.Context, run *redeliver.TracedRun) (context.Context, redeliver.Span) {
	tr.note("begin")
	name := tr.names[len(tr.runs)]
	tr.runs = append(tr.runs, *run)
	return context.WithValue(ctx, runKey{}, name), &run1{tr, name}
}

func (tr *tracing) DeadLettered(ctx context.Context, b *redeliver.Burial) {
	tr.note("buried below " + fmtRun(ctx))
	tr.dead = append(tr.dead, *b)
}

type run1 struct {
	tr   *tracing
	name string
}

func (r *run1) Traceparent() string { return r.name }
func (r *run1) End(e redeliver.RunEnd) {
	r.tr.note("end " + string(e.Outcome))
	r.tr.ends = append(r.tr.ends, e)
}

func fmtRun(ctx context.Context) string {
	name, _ := ctx.Value(runKey{}).(string)
	return name
}

// headed is a record with headers.
type headed struct{ meta message.Metadata }

func (r headed) Message() (*message.Message, error) {
	msg := message.NewMessage("orders/0/1", []byte("payload"))
	msg.Metadata = r.meta
	return msg, nil
}

// A run ends when the policy has decided, before anything is written, and its name is
// written with the message. The burial is told when it is confirmed.
func TestARunEndsBeforeTheWriteThatCarriesItsName(t *testing.T) {
	b := &broker{}
	tr := &tracing{b: b, names: []string{firstRun, secondRun}}
	sub, d := subscribe(b, t.Context())
	sub.Tracer, sub.Policy.MaxRetries = tr, 1
	meta := message.Metadata{"tenant": "acme"}
	var seen []string
	work := &task{headed: meta, handle: func(ctx context.Context) error { seen = append(seen, fmtRun(ctx)); return errOurs }}
	work.work(d)
	if tr.runs[0].Messages[0].State.Trace != "" || b.wrote[0].Trace != firstRun {
		t.Fatalf("written with the trace %q, want %q", b.wrote[0].Trace, firstRun)
	}
	again := &delayqueue.Delivery{Sub: sub, Record: headed{meta}, Waited: &b.wrote[0]}
	again.Begin(t.Context())
	work.work(again)
	if got := tr.runs[1].Messages[0]; got.State.Trace != firstRun || got.State.Attempt() != 2 || got.Headers.Get("tenant") != "acme" || b.wrote[1].Trace != secondRun {
		t.Errorf("the second run began with %+v, and was written with the trace %q", got, b.wrote[1].Trace)
	}
	if want := []string{
		"begin", "Attempted", "end retried", "level confirms", "RetryScheduled",
		"begin", "Attempted", "end dead-lettered", "dlq confirms", "DeadLettered", "buried below " + secondRun,
	}; !slices.Equal(b.seen(), want) {
		t.Errorf("seen\n %q\nwant\n %q", b.seen(), want)
	}
	if !slices.Equal(seen, []string{firstRun, secondRun}) {
		t.Errorf("the handler saw %q", seen)
	}
	if end := tr.ends[1]; end.State.Reason != redeliver.ReasonExhausted || end.Err == nil || tr.dead[0].Where != "dlq" || tr.dead[0].Message.Headers.Get("tenant") != "acme" {
		t.Errorf("it ended with %+v, and was buried as %+v", end, tr.dead[0])
	}
}

// How a run ends is what became of its message.
func TestHowARunEnds(t *testing.T) {
	for _, c := range []struct {
		name      string
		err       error
		immediate int
		ends      []redeliver.Outcome
	}{
		{"retry", errOurs, 0, []redeliver.Outcome{redeliver.OutcomeRetried}},
		{"again in place", errOurs, 1, []redeliver.Outcome{redeliver.OutcomeRetried, redeliver.OutcomeRetried}},
		{"dead letter", redeliver.Reject("no"), 0, []redeliver.Outcome{redeliver.OutcomeDeadLettered}},
		{"postponed", redeliver.Postpone(errOurs), 0, []redeliver.Outcome{redeliver.OutcomePostponed}},
	} {
		tr := &tracing{b: &broker{}, names: []string{firstRun, secondRun}}
		sub, d := subscribe(tr.b, t.Context())
		sub.Tracer, sub.Policy.Immediate = tr, c.immediate
		(&task{handle: func(context.Context) error { return c.err }}).work(d)
		var ends []redeliver.Outcome
		for _, e := range tr.ends {
			ends = append(ends, e.Outcome)
		}
		if !slices.Equal(ends, c.ends) {
			t.Errorf("%s: ended as %q, want %q", c.name, ends, c.ends)
		}
	}
}

// The run of a handler that gathers its message for a batch ends there, and the next
// message of the subscription has none: its run is the batch function's.
func TestARunEndsWhereABatchBegins(t *testing.T) {
	tr := &tracing{b: &broker{}, names: []string{firstRun, secondRun}}
	sub, _ := subscribe(tr.b, t.Context())
	sub.Tracer = tr
	for range 2 {
		d := deliver(sub, t.Context())
		(&task{handle: func(context.Context) error { d.Gathers(); return nil }}).work(d)
	}
	if len(tr.runs) != 1 || len(tr.ends) != 1 || tr.ends[0].Outcome != redeliver.OutcomeGathered {
		t.Errorf("%d runs, ended as %+v; want one, gathered", len(tr.runs), tr.ends)
	}
}

// A message that its Router nacks when its handler has succeeded names that run; and one
// that no tracer sees keeps the name that it has.
func TestAMessageNamesTheLatestRun(t *testing.T) {
	b := &broker{}
	tr := &tracing{b: b, names: []string{secondRun}}
	sub, _ := subscribe(b, t.Context())
	for _, tracer := range []redeliver.Tracer{tr, nil} {
		sub.Tracer = tracer
		d := &delayqueue.Delivery{Sub: sub, Record: record{}, Waited: &redeliver.State{ID: "a", Attempts: 1, Trace: firstRun}}
		d.Begin(t.Context())
		(&task{handle: func(context.Context) error { return nil }}).work(d)
		dec, cause := sub.DecideNack(d, time.Minute, time.Now())
		if err := sub.Forward(d, dec, cause); err != nil {
			t.Fatal(err)
		}
	}
	if b.wrote[0].Trace != secondRun || b.wrote[1].Trace != firstRun {
		t.Errorf("written with the traces %q and %q", b.wrote[0].Trace, b.wrote[1].Trace)
	}
	if len(tr.ends) != 1 || tr.ends[0].Outcome != redeliver.OutcomeSucceeded {
		t.Errorf("the run ended as %+v", tr.ends)
	}
}

// awful is a tracer that is no use.
type awful struct{ panics, noContext bool }

func (a awful) Begin(context.Context, *redeliver.TracedRun) (context.Context, redeliver.Span) {
	switch {
	case a.panics:
		panic("no collector")
	case a.noContext:
		return nil, nil
	default:
		return context.Background(), a // below nothing: the handler's end is not the attempt's
	}
}
func (awful) DeadLettered(context.Context, *redeliver.Burial) { panic("no collector") }
func (awful) Traceparent() string                             { panic("no collector") }
func (awful) End(redeliver.RunEnd)                            { panic("no collector") }

// What the library does is the same with a tracer that fails.
func TestATracerThatFailsIsAsNone(t *testing.T) {
	for name, tr := range map[string]redeliver.Tracer{
		"panics at once": awful{panics: true}, "has no context": awful{noContext: true}, "panics later": awful{},
	} {
		b := &broker{}
		sub, d := subscribe(b, t.Context())
		sub.Tracer, sub.Policy.MaxRetries = tr, redeliver.NoRetries
		how, _ := (&task{handle: func(context.Context) error { return errOurs }}).work(d)
		if want := []string{"Attempted", "dlq confirms", "DeadLettered"}; how != delayqueue.Forwarded || !slices.Equal(b.seen(), want) {
			t.Errorf("%s: seen %q, ended as %d; want %q", name, b.seen(), how, want)
		}
	}
}

// A message that crashes its process has no run here, and its burial is told all the same.
func TestABurialWithoutARun(t *testing.T) {
	b := &broker{}
	tr := &tracing{b: b}
	sub, _ := subscribe(b, t.Context())
	sub.Tracer = tr
	d := &delayqueue.Delivery{Sub: sub, Record: record{}, Waited: &redeliver.State{ID: "a", Attempts: 1, Trace: firstRun}}
	d.Begin(t.Context())
	crashed := &redeliver.CrashedError{Times: 3}
	if err := sub.Forward(d, sub.Decide(d.State(), crashed, time.Now()), crashed); err != nil {
		t.Fatal(err)
	}
	if len(tr.dead) != 1 || tr.dead[0].Message.State.Trace != firstRun || tr.dead[0].Message.State.Reason != redeliver.ReasonCrashed || tr.dead[0].Began.IsZero() {
		t.Errorf("buried as %+v", tr.dead)
	}
}

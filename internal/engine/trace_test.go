package engine_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/observe"
)

const (
	firstRun  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	secondRun = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
)

// recordingTracer is a tracer that writes to a journal. It gives the next name to each run.
type recordingTracer struct {
	j     *journal
	names []string
	runs  []observe.Run
	ends  []observe.End
	dead  []observe.DeadLetter
}

// trace sets a tracer for the subscription of a journal.
func trace(j *journal, names ...string) *recordingTracer {
	tr := &recordingTracer{j: j, names: names}
	j.sub.Tracer = tr
	return tr
}

type runKey struct{}

func (tr *recordingTracer) Begin(ctx context.Context, run *observe.Run) (context.Context, observe.Span) {
	tr.j.logLine("begin")
	name := tr.names[len(tr.runs)]
	tr.runs = append(tr.runs, *run)
	return context.WithValue(ctx, runKey{}, name), &span{tr, name}
}

func (tr *recordingTracer) DeadLettered(ctx context.Context, b *observe.DeadLetter) {
	tr.j.logLine("dead-lettered below " + runOf(ctx))
	if ctx.Err() != nil {
		tr.j.logLine("whose context has ended")
	}
	tr.dead = append(tr.dead, *b)
}

type span struct {
	tr   *recordingTracer
	name string
}

func (s *span) Traceparent() string { return s.name }
func (s *span) End(e observe.End) {
	s.tr.j.logLine("end " + string(e.Outcome))
	s.tr.ends = append(s.tr.ends, e)
}

func runOf(ctx context.Context) string {
	name, _ := ctx.Value(runKey{}).(string)
	return name
}

// A span ends when the policy has decided, before the write, and its traceparent is written with the message. DeadLettered is called
// when the write is confirmed.
func TestASpanEndsBeforeTheWriteWithItsTraceparent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Second)})
		j.headers = message.Metadata{"tenant": "acme"}
		tr := trace(j, firstRun, secondRun)
		var seen []string
		j.start(t, handle(func(ctx context.Context, _ *record) error { seen = append(seen, runOf(ctx)); return errOurs }))
		j.publish("a")
		<-time.After(time.Minute)
		synctest.Wait()
		j.want(t, "runs",
			"begin", "Attempted", "end retried", "level confirms", "RetryScheduled",
			"begin", "Attempted", "end dead-lettered", "dlq confirms", "DeadLettered", "dead-lettered below "+secondRun)
		wrote := j.written()
		if first, again := tr.runs[0].Messages[0], tr.runs[1].Messages[0]; first.State.Trace != "" || wrote[0].Trace != firstRun ||
			again.State.Trace != firstRun || again.State.Attempt() != 2 || again.Headers.Get("tenant") != "acme" || wrote[1].Trace != secondRun {
			t.Errorf("the second run began with %+v; written as %+v", again, wrote)
		}
		if !slices.Equal(seen, []string{firstRun, secondRun}) {
			t.Errorf("the handler saw %q", seen)
		}
		if end := tr.ends[1]; end.State.Reason != redeliver.ReasonExhausted || end.Err == nil || tr.dead[0].Where != "dlq" || tr.dead[0].Message.Headers.Get("tenant") != "acme" {
			t.Errorf("it ended with %+v, and is in the DLQ as %+v", end, tr.dead[0])
		}
	})
}

// The outcome of a span is the end of its message.
func TestASpanHasTheOutcomeOfItsMessage(t *testing.T) {
	for name, c := range map[string]struct {
		immediate int
		handle    func(context.Context) error
		ends      []observe.Outcome
	}{
		"success":        {0, func(context.Context) error { return nil }, []observe.Outcome{observe.OutcomeSucceeded}},
		"retry":          {0, func(context.Context) error { return errOurs }, []observe.Outcome{observe.OutcomeRetried}},
		"again in place": {1, func(context.Context) error { return errOurs }, []observe.Outcome{observe.OutcomeRetried, observe.OutcomeRetried}},
		"dead letter":    {0, func(context.Context) error { return redeliver.Reject("no") }, []observe.Outcome{observe.OutcomeDeadLettered}},
		"postponed":      {0, func(context.Context) error { return redeliver.Postpone(errOurs) }, []observe.Outcome{observe.OutcomePostponed}},
		"timeout":        {0, func(context.Context) error { <-time.After(time.Hour); return nil }, []observe.Outcome{observe.OutcomeRetried}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(24 * time.Hour), Immediate: c.immediate, Timeout: time.Minute}
			j := newJournal(p)
			tr := trace(j, firstRun, secondRun)
			j.start(t, handle(func(ctx context.Context, _ *record) error { return c.handle(ctx) }))
			j.publish("a")
			<-time.After(2 * time.Hour)
			synctest.Wait()
			var ends []observe.Outcome
			for _, e := range tr.ends {
				ends = append(ends, e.Outcome)
			}
			if !slices.Equal(ends, c.ends) {
				t.Errorf("%s: ended as %q, want %q", name, ends, c.ends)
			}
		})
	}
}

// The context that DeadLettered gets has not ended although the time of the attempt is over.
func TestDeadLetteredGetsALiveContextAfterATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(redeliver.Policy{MaxRetries: redeliver.NoRetries, Timeout: time.Minute})
		trace(j, firstRun)
		j.start(t, handle(func(ctx context.Context, _ *record) error { <-ctx.Done(); return ctx.Err() }))
		j.publish("a")
		<-time.After(time.Hour)
		synctest.Wait()
		j.want(t, "timeout", "begin", "Attempted", "end dead-lettered", "dlq confirms", "DeadLettered", "dead-lettered below "+firstRun)
	})
}

// The span of a message that is lost while its handler runs is abandoned.
func TestTheSpanOfALostMessageIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(hourly())
		tr := trace(j, firstRun)
		j.start(t, handle(func(ctx context.Context, _ *record) error { <-ctx.Done(); return ctx.Err() }))
		j.publish("a")
		synctest.Wait()
		close(j.lost)
		synctest.Wait()
		if len(tr.ends) != 1 || tr.ends[0].Outcome != observe.OutcomeAbandoned {
			t.Errorf("ended as %+v", tr.ends)
		}
	})
}

// A batch has one span with all its messages. It ends with the function's answer, and each message that fails carries its
// traceparent.
func TestABatchHasOneSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(hourly())
		tr := trace(j, firstRun)
		var seen string
		j.start(t, engine.Options[*record]{
			BatchConfig: redeliver.BatchConfig{Size: 2}.WithDefaults(),
			Batch: func(b *engine.Batch, all []*engine.BatchMember[*record]) error {
				seen = runOf(b)
				all[0].Answer(nil)
				return errOurs
			},
		})
		j.publish("a")
		synctest.Wait()
		j.publish("b")
		synctest.Wait()
		if len(tr.runs) != 1 || !tr.runs[0].Batch || tr.runs[0].Origin != "orders" || tr.runs[0].Group != "billing" || len(tr.runs[0].Messages) != 2 || tr.runs[0].Messages[1].State.ID != "b" {
			t.Errorf("runs %+v", tr.runs)
		}
		if len(tr.ends) != 1 || tr.ends[0].Outcome != observe.OutcomeAnswered || tr.ends[0].Err == nil || seen != firstRun || j.written()[0].Trace != firstRun {
			t.Errorf("ended as %+v, the function saw %q, written as %+v", tr.ends, seen, j.written())
		}
	})
}

// failingTracer is a tracer that fails in every way.
type failingTracer struct{ panics, noContext bool }

func (a failingTracer) Begin(context.Context, *observe.Run) (context.Context, observe.Span) {
	switch {
	case a.panics:
		panic("no collector")
	case a.noContext:
		return nil, nil
	default:
		return context.Background(), a // has no parent: the handler's end is not the attempt's
	}
}
func (failingTracer) DeadLettered(context.Context, *observe.DeadLetter) { panic("no collector") }
func (failingTracer) Traceparent() string                               { panic("no collector") }
func (failingTracer) End(observe.End)                                   { panic("no collector") }

// A tracer that fails changes nothing for the messages.
func TestATracerThatFailsChangesNothing(t *testing.T) {
	for name, tr := range map[string]observe.Tracer{
		"panics at once": failingTracer{panics: true}, "has no context": failingTracer{noContext: true}, "panics later": failingTracer{},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJournal(redeliver.Policy{MaxRetries: redeliver.NoRetries})
			j.sub.Tracer = tr
			j.start(t, failWith(errOurs))
			j.publish("a")
			synctest.Wait()
			j.want(t, name, "Attempted", "dlq confirms", "DeadLettered")
		})
	}
}

// DeadLettered is also called for a message that goes to the DLQ without an attempt, because it crashed its process, say.
func TestDeadLetteredIsCalledWithoutAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(hourly())
		tr := trace(j)
		j.toDLQ = &redeliver.CrashedError{Crashes: 3}
		j.start(t, failWith(errOurs))
		j.in <- &record{id: "a", state: &redeliver.State{ID: "a", Attempts: 1, Trace: firstRun}}
		synctest.Wait()
		j.want(t, "a dead letter without an attempt", "dlq confirms", "DeadLettered", "dead-lettered below ")
		if dead := tr.dead; len(dead) != 1 || dead[0].Message.State.Trace != firstRun || dead[0].Message.State.Reason != redeliver.ReasonCrashed || dead[0].Began.IsZero() {
			t.Errorf("reported %+v", dead)
		}
	})
}

// A Watermill message that is nacked by hand after its span has ended carries the traceparent of that span. Without a tracer it keeps
// the one that it brought.
func TestAMessageCarriesTheLatestTraceparent(t *testing.T) {
	for name, traced := range map[string]bool{secondRun: true, firstRun: false} {
		synctest.Test(t, func(t *testing.T) {
			j := newJournal(hourly())
			if traced {
				trace(j, secondRun)
			}
			router := binding.New(j.message)
			j.start(t, engine.Options[*record]{Handler: router})
			j.in <- &record{id: "a", state: &redeliver.State{ID: "a", Attempts: 1, Trace: firstRun}}
			msg := <-router.Messages()
			d := engine.FromContext(msg.Context())
			if ok, err := d.Run(d, func(context.Context) error { return nil }); !ok || err != nil {
				t.Errorf("%v %v", ok, err)
			}
			msg.Nack()
			synctest.Wait()
			if got := j.written(); len(got) != 1 || got[0].Trace != name {
				t.Errorf("written as %+v, want the run %s", got, name)
			}
		})
	}
}

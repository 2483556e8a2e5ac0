package delayqueue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// clerk counts what succeeds at once, and notes all else.
type clerk struct {
	choosy

	attempted, committed int
	took                 time.Duration // by the latest attempt that was counted
	panics               bool
	rest                 redeliver.Sink
}

func (c *clerk) Wants(redeliver.Event) bool { return true }

func (c *clerk) Tally(_ redeliver.Sink, origin, group string) (redeliver.Tally, redeliver.Sink) {
	if origin != "orders" || group != "billing" {
		panic("of another subscription")
	}
	return c, c.rest
}

func (c *clerk) Attempted(took time.Duration) {
	c.attempted++
	c.took = took
	if c.panics {
		panic("theirs")
	}
}

func (c *clerk) Committed() {
	c.committed++
	if c.panics {
		panic("theirs")
	}
}

// handling is what the handler takes for each attempt.
const handling = 3 * time.Second

// handled is a message that a handler handles, and that is acked.
func handled(t *testing.T, sink redeliver.Sink, waited *redeliver.State, answers ...error) {
	t.Helper()
	sub := &delayqueue.Subscription{
		Origin: "orders", Group: "billing", Sink: sink, Policy: redeliver.Policy{Immediate: 1}.WithDefaults(),
	}
	d := &delayqueue.Delivery{Sub: sub, ID: "1", Waited: waited}
	d.Begin(t.Context())
	e := &flyer{d: d}
	f := delayqueue.NewFlight[*flyer]()
	f.Begin(e)
	n := 0
	tk := &task{handle: func(context.Context) error {
		n++
		<-time.After(handling)
		return answers[n-1]
	}}
	synctest.Test(t, func(*testing.T) {
		how, _ := tk.work(d)
		f.Land(e, how)
	})
}

// What succeeds at once is counted and makes no event; all else makes those that it made.
func TestWhatSucceedsAtOnceIsCounted(t *testing.T) {
	waited := &redeliver.State{ID: "1", Origin: "orders", Group: "billing", Attempts: 1}
	for _, c := range []struct {
		name    string
		waited  *redeliver.State
		answers []error
		counted int
		told    int
	}{
		{"at once", nil, []error{nil}, 1, 0},
		{"in the second attempt, in place", nil, []error{errTheirs, nil}, 0, 3},
		{"in the second attempt, after a wait", waited, []error{nil}, 0, 2},
	} {
		sink := new(clerk)
		handled(t, sink, c.waited, c.answers...)
		if sink.attempted != c.counted || sink.committed != c.counted || len(sink.told) != c.told {
			t.Errorf("%s: counted %d attempts and %d commits, told %v", c.name, sink.attempted, sink.committed, sink.told)
		}
		if c.counted > 0 && sink.took != handling {
			t.Errorf("%s: the attempt took %s, want %s", c.name, sink.took, handling)
		}
	}
}

// An id is composed only for who wants to hear of what succeeds at once.
func TestWhoWantsSuccesses(t *testing.T) {
	for name, c := range map[string]struct {
		sink redeliver.Sink
		want bool
	}{
		"nobody":                              {nil, false},
		"one who wants all":                   {&broker{}, true},
		"one who wants none":                  {&choosy{}, false},
		"one who counts":                      {&clerk{}, false},
		"one who counts, and one who listens": {&clerk{rest: &broker{}}, true},
	} {
		sub := &delayqueue.Subscription{Origin: "orders", Group: "billing", Sink: c.sink}
		if got := sub.WantsSuccesses(); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// Who does not count hears of both, and only he: unless he wants nothing of it.
func TestWhoDoesNotCountIsTold(t *testing.T) {
	listens, deaf := new(clerk), new(choosy)
	sink := &clerk{rest: redeliver.SinkFunc(listens.Event)}
	handled(t, sink, nil, nil)
	if sink.attempted != 1 || sink.committed != 1 || len(sink.told) != 0 || len(listens.told) != 2 {
		t.Errorf("counted %d and %d, told %v, and the other %v", sink.attempted, sink.committed, sink.told, listens.told)
	}
	sink.rest = deaf
	handled(t, sink, nil, nil)
	if len(deaf.told) != 0 {
		t.Errorf("who wants nothing was told %v", deaf.told)
	}
}

// A tally that panics takes nothing along: not the message, nor what the others are told.
func TestATallyThatPanicsIsNotHeard(t *testing.T) {
	listens := new(clerk)
	sink := &clerk{panics: true, rest: redeliver.SinkFunc(listens.Event)}
	handled(t, sink, nil, nil)
	if sink.attempted != 1 || sink.committed != 1 || len(listens.told) != 2 {
		t.Errorf("counted %d and %d, and the other was told %v", sink.attempted, sink.committed, listens.told)
	}
}

// hasty begins first attempts by a way of its own.
type hasty struct {
	tracing

	firsts []redeliver.FirstRun
	way    func(*hasty) redeliver.FirstRuns
}

func (h *hasty) First(redeliver.Tracer, string, string) redeliver.FirstRuns { return h.way(h) }

type hastyRuns struct{ h *hasty }

func (r hastyRuns) Begin(ctx context.Context, run *redeliver.FirstRun) (context.Context, redeliver.Span) {
	r.h.firsts = append(r.h.firsts, *run)
	return ctx, &run1{&r.h.tracing, firstRun}
}

// Where a tracer has a way for first attempts it is taken for them alone, and its span is
// the one that the next attempt knows. Where it has none, or panics, the other is.
func TestFirstAttemptsHaveAWayOfTheirOwn(t *testing.T) {
	for _, c := range []struct {
		name         string
		way          func(*hasty) redeliver.FirstRuns
		firsts, runs int
	}{
		{"one", func(h *hasty) redeliver.FirstRuns { return hastyRuns{h} }, 1, 1},
		{"none", func(*hasty) redeliver.FirstRuns { return nil }, 0, 2},
		{"one that panics", func(*hasty) redeliver.FirstRuns { panic("theirs") }, 0, 2},
	} {
		tr := &hasty{tracing: tracing{b: new(broker), names: []string{secondRun, secondRun}}, way: c.way}
		sub := &delayqueue.Subscription{Origin: "orders", Group: "billing", Tracer: tr, Policy: redeliver.Policy{Immediate: 1}.WithDefaults()}
		d := &delayqueue.Delivery{Sub: sub, ID: "1", Source: redeliver.Source{Known: true, Partition: 3}}
		d.Begin(t.Context())
		failed := false
		tk := &task{handle: func(context.Context) error {
			if !failed {
				failed = true
				return errTheirs
			}
			return nil
		}}
		tk.work(d)
		if len(tr.firsts) != c.firsts || len(tr.runs) != c.runs || len(tr.ends) != 2 {
			t.Fatalf("%s: %d first runs, %d others, %d ends", c.name, len(tr.firsts), len(tr.runs), len(tr.ends))
		}
		if again := tr.runs[c.runs-1].Messages[0].State; again.Attempts != 1 || again.Trace == "" {
			t.Errorf("%s: the second attempt ran under %+v", c.name, again)
		}
		if c.firsts > 0 && (tr.firsts[0].Source.Partition != 3 || tr.firsts[0].Message.State().ID != "1" || tr.runs[0].Messages[0].State.Trace != firstRun) {
			t.Errorf("%s: %+v", c.name, tr.firsts[0])
		}
	}
}

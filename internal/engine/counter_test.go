package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/observe"
)

// countingSink is a sink that counts first attempts that succeed, and keeps all other events.
type countingSink struct {
	events               []redeliver.Event
	attempted, committed int
	took                 time.Duration // by the latest attempt that was counted
	panics               bool
	rest                 redeliver.Sink
}

func (c *countingSink) Event(e redeliver.Event) { c.events = append(c.events, e) }

func (c *countingSink) Counter(_ redeliver.Sink, origin, group string) (observe.Counter, redeliver.Sink) {
	if origin != "orders" || group != "billing" {
		panic("of another subscription")
	}
	return c, c.rest
}

func (c *countingSink) Attempted(took time.Duration) {
	c.attempted++
	c.took = took
	if c.panics {
		panic("theirs")
	}
}

func (c *countingSink) Committed() {
	c.committed++
	if c.panics {
		panic("theirs")
	}
}

// filteringSink is a sink that does not want the events that every message has.
type filteringSink struct{ events []redeliver.Event }

func (s *filteringSink) Event(e redeliver.Event) { s.events = append(s.events, e) }
func (s *filteringSink) Wants(e redeliver.Event) bool {
	switch e.(type) {
	case redeliver.Attempted, redeliver.Committed:
		return false
	default:
		return true
	}
}

// runMessage runs a message whose handler takes 3 s for each attempt and returns these answers.
func runMessage(t *testing.T, sink redeliver.Sink, r *record, answers ...error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{Immediate: 1, MaxRetries: 3, Backoff: redeliver.Fixed(time.Hour)})
		b.sub.Sink = sink
		n := 0
		b.run(t, handle(func(context.Context, *record) error {
			n++
			<-time.After(3 * time.Second)
			return answers[n-1]
		}), engine.LaneOptions[*record]{})
		b.in <- r
		<-time.After(time.Minute)
	})
}

// A message that succeeds at the first attempt is counted and makes no event. Every other message makes events. A sink that does not
// count gets events of both, unless it wants none. A panic of a counter is ignored.
func TestAFirstAttemptThatSucceedsIsCounted(t *testing.T) {
	before := &redeliver.State{ID: "1", Origin: "orders", Group: "billing", Attempts: 1}
	listener, selects := new(countingSink), new(filteringSink)
	for name, c := range map[string]struct {
		sink        *countingSink
		before      *redeliver.State
		answers     []error
		counted     int
		events      int
		otherEvents int
	}{
		"at once":                          {sink: new(countingSink), answers: []error{nil}, counted: 1},
		"in the second attempt in place":   {sink: new(countingSink), answers: []error{errTheirs, nil}, events: 3},
		"after a wait":                     {sink: new(countingSink), before: before, answers: []error{nil}, events: 2},
		"with a sink for events":           {sink: &countingSink{rest: redeliver.SinkFunc(listener.Event)}, answers: []error{nil}, counted: 1, otherEvents: 2},
		"with a sink that wants no events": {sink: &countingSink{rest: selects}, answers: []error{nil}, counted: 1},
		"panics":                           {sink: &countingSink{panics: true, rest: redeliver.SinkFunc(listener.Event)}, answers: []error{nil}, counted: 1, otherEvents: 2},
	} {
		listener.events, selects.events = nil, nil
		runMessage(t, c.sink, &record{id: "1", state: c.before}, c.answers...)
		if c.sink.attempted != c.counted || c.sink.committed != c.counted || len(c.sink.events) != c.events || len(listener.events) != c.otherEvents || len(selects.events) > 0 {
			t.Errorf("%s: counted %d attempts and %d commits, reported %v, and to the other %v %v", name, c.sink.attempted, c.sink.committed, c.sink.events, listener.events, selects.events)
		}
		if c.counted > 0 && c.sink.took != 3*time.Second {
			t.Errorf("%s: the attempt took %s", name, c.sink.took)
		}
	}
}

// A sink that does not want the events of every message gets the others, and Wants allocates nothing.
func TestUnwantedEventsAreNotCreated(t *testing.T) {
	for name, c := range map[string]struct {
		sink  redeliver.Sink
		wants bool
	}{
		"nobody":                 {nil, false},
		"a sink that wants all":  {redeliver.SinkFunc(func(redeliver.Event) {}), true},
		"a sink that wants none": {&filteringSink{}, false},
		"one that counts":        {&countingSink{}, true},
	} {
		sub := &engine.Subscription{Origin: "orders", Group: "billing", Sink: c.sink}
		if got := sub.Wants(redeliver.Committed{}); got != c.wants {
			t.Errorf("%s: wants: %t", name, got)
		}
		if n := testing.AllocsPerRun(100, func() { sub.Wants(redeliver.Attempted{}) }); n > 0 {
			t.Errorf("%s: Wants takes %v allocations", name, n)
		}
	}
	s := &filteringSink{}
	runMessage(t, s, &record{id: "1"}, nil)
	if len(s.events) > 0 {
		t.Errorf("it got %v for a success", s.events)
	}
	if runMessage(t, s, &record{id: "1"}, redeliver.Reject("no")); len(s.events) != 1 {
		t.Errorf("it got %v for a dead letter", s.events)
	}
}

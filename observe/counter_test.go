package observe_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
)

// splitSink is a sink that counts, and has another sink for events.
type splitSink struct {
	attempted, committed int
	rest                 redeliver.Sink
	none                 bool
}

func (a *splitSink) Event(e redeliver.Event) {
	if a.none && a.rest != nil {
		a.rest.Event(e)
	}
}
func (a *splitSink) Attempted(time.Duration) { a.attempted++ }
func (a *splitSink) Committed()              { a.committed++ }

func (a *splitSink) Counter(redeliver.Sink, string, string) (observe.Counter, redeliver.Sink) {
	if a.none {
		return nil, a.rest
	}
	return a, a.rest
}

// Of several sinks those that are CountingSink count, each once, and the others get events.
func TestSinksCombineCounters(t *testing.T) {
	reported := 0
	listens := redeliver.SinkFunc(func(redeliver.Event) { reported++ })
	one, two := &splitSink{}, &splitSink{rest: listens}
	for _, c := range []struct {
		name     string
		sinks    redeliver.Sink
		counts   bool
		received int // how many sinks get an event
	}{
		{"no sink", observe.Sinks(), false, 0},
		{"a sink for events", observe.Sinks(listens), false, 1},
		{"a sink that counts", observe.Sinks(one), true, 0},
		{"both", observe.Sinks(one, listens, two), true, 2},
		{"a list in a list", observe.Sinks(observe.Sinks(one, listens), two), true, 2},
		{"a sink that counts nothing here", observe.Sinks(&splitSink{none: true, rest: listens}), false, 1},
	} {
		*one, *two, reported = splitSink{}, splitSink{rest: listens}, 0
		counter, rest := c.sinks.(observe.CountingSink).Counter(c.sinks, "orders", "billing")
		if (counter != nil) != c.counts {
			t.Errorf("%s: counts: %v", c.name, counter != nil)
		}
		if counter != nil {
			counter.Attempted(time.Second)
			counter.Committed()
			if one.attempted != 1 || one.committed != 1 || two.attempted != two.committed {
				t.Errorf("%s: counted %+v and %+v", c.name, one, two)
			}
		}
		if rest != nil {
			rest.Event(redeliver.Committed{})
		}
		if reported != c.received {
			t.Errorf("%s: %d got an event, want %d", c.name, reported, c.received)
		}
	}
}

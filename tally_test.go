package redeliver_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// abacus counts, and has others hear of events.
type abacus struct {
	attempted, committed int
	rest                 redeliver.Sink
	none                 bool
}

func (a *abacus) Event(e redeliver.Event) {
	if a.none && a.rest != nil {
		a.rest.Event(e)
	}
}
func (a *abacus) Attempted(time.Duration) { a.attempted++ }
func (a *abacus) Committed()              { a.committed++ }

func (a *abacus) Tally(redeliver.Sink, string, string) (redeliver.Tally, redeliver.Sink) {
	if a.none {
		return nil, a.rest
	}
	return a, a.rest
}

// Of several sinks those that count do, each once, and the rest are those that do not.
func TestSinksCountWhereTheyCan(t *testing.T) {
	told := 0
	listens := redeliver.SinkFunc(func(redeliver.Event) { told++ })
	one, two := &abacus{}, &abacus{rest: listens}
	for _, c := range []struct {
		name   string
		sinks  redeliver.Sink
		counts bool
		heard  int // how many hear an event
	}{
		{"nobody", redeliver.Sinks(), false, 0},
		{"who listens", redeliver.Sinks(listens), false, 1},
		{"who counts", redeliver.Sinks(one), true, 0},
		{"both", redeliver.Sinks(one, listens, two), true, 2},
		{"a list in a list", redeliver.Sinks(redeliver.Sinks(one, listens), two), true, 2},
		{"who counts nothing here", redeliver.Sinks(&abacus{none: true, rest: listens}), false, 1},
	} {
		*one, *two, told = abacus{}, abacus{rest: listens}, 0
		tally, rest := c.sinks.(redeliver.Tallying).Tally(c.sinks, "orders", "billing")
		if (tally != nil) != c.counts {
			t.Errorf("%s: counts: %v", c.name, tally != nil)
		}
		if tally != nil {
			tally.Attempted(time.Second)
			tally.Committed()
			if one.attempted != 1 || one.committed != 1 || two.attempted != two.committed {
				t.Errorf("%s: counted %+v and %+v", c.name, one, two)
			}
		}
		if rest != nil {
			rest.Event(redeliver.Committed{})
		}
		if told != c.heard {
			t.Errorf("%s: %d heard of an event, want %d", c.name, told, c.heard)
		}
	}
}

package otel_test

import (
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe/otel"
)

// embedding is a user's sink that embeds ours and has its own method Event.
type embedding struct {
	*otel.Sink

	collected int
}

func (l *embedding) Event(e redeliver.Event) {
	l.collected++
	l.Sink.Event(e)
}

// A sink that embedded ours once inherited its Counter, and was no longer called for messages that succeed at once.
func TestASinkThatEmbedsOursIsCalled(t *testing.T) {
	sink, err := otel.New(otel.Config{System: "kafka"})
	if err != nil {
		t.Fatal(err)
	}
	outer := &embedding{Sink: sink}
	if tally, rest := outer.Counter(outer, "orders", "billing"); tally != nil || rest != redeliver.Sink(outer) {
		t.Errorf("%v counts for it, and %v is reported", tally, rest)
	}
	if tally, rest := sink.Counter(sink, "orders", "billing"); tally == nil || rest != nil {
		t.Errorf("%v counts for itself, and %v is reported", tally, rest)
	}
	tally, rest := redeliver.Sinks(outer, sink).(redeliver.CountingSink).Counter(nil, "orders", "billing")
	if rest == nil || tally == nil {
		t.Fatal("in a list one counts and the other is reported")
	}
	if rest.Event(redeliver.Committed{}); outer.collected != 1 {
		t.Errorf("in a list it is reported %d times", outer.collected)
	}
}

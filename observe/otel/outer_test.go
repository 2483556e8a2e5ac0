package otel_test

import (
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
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

// A sink that embeds ours does not inherit its Counter: it is called for messages that succeed at once, too.
func TestASinkThatEmbedsOursIsCalled(t *testing.T) {
	sink, err := otel.New(otel.Config{System: "kafka"})
	if err != nil {
		t.Fatal(err)
	}
	outer := &embedding{Sink: sink}
	if counter, rest := outer.Counter(outer, "orders", "billing"); counter != nil || rest != redeliver.Sink(outer) {
		t.Errorf("%v counts for it, and %v is reported", counter, rest)
	}
	if counter, rest := sink.Counter(sink, "orders", "billing"); counter == nil || rest != nil {
		t.Errorf("%v counts for itself, and %v is reported", counter, rest)
	}
	counter, rest := observe.Sinks(outer, sink).(observe.CountingSink).Counter(nil, "orders", "billing")
	if rest == nil || counter == nil {
		t.Fatal("in a list one counts and the other is reported")
	}
	if rest.Event(redeliver.Committed{}); outer.collected != 1 {
		t.Errorf("in a list it is reported %d times", outer.collected)
	}
}

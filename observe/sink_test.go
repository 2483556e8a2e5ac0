package observe_test

import (
	"bytes"
	"log/slog"
	"slices"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
)

func TestSinksGetEventsInOrder(t *testing.T) {
	var read []string
	to := func(name string) redeliver.Sink {
		return redeliver.SinkFunc(func(e redeliver.Event) { read = append(read, name+" "+e.(redeliver.Published).Topic) })
	}
	all := observe.Sinks(to("a"), nil, to("b"), observe.Sinks(to("c"), to("d")))
	all.Event(redeliver.Published{Topic: "1"})
	all.Event(redeliver.Published{Topic: "2"})
	if want := []string{"a 1", "b 1", "c 1", "d 1", "a 2", "b 2", "c 2", "d 2"}; !slices.Equal(read, want) {
		t.Errorf("reported %q, want %q", read, want)
	}
	observe.Sinks().Event(redeliver.Published{}) // an empty list of sinks is valid
	if len(read) != 8 {
		t.Errorf("reported %q", read)
	}
}

// Several sinks want an event that one of them wants. A sink that is not a FilteringSink wants all.
func TestSinksWantAnEventThatOneWants(t *testing.T) {
	quiet := redeliver.NewSlogSink(slog.New(slog.NewTextHandler(new(bytes.Buffer), &slog.HandlerOptions{Level: slog.LevelInfo})))
	loud := redeliver.NewSlogSink(slog.New(slog.NewTextHandler(new(bytes.Buffer), &slog.HandlerOptions{Level: slog.LevelDebug})))
	plain := redeliver.SinkFunc(func(redeliver.Event) {})
	for i, c := range []struct {
		sink           redeliver.Sink
		attempts, dead bool
	}{
		{quiet, false, true}, {loud, true, true},
		{observe.Sinks(quiet, quiet), false, true}, {observe.Sinks(quiet, loud), true, true},
		{observe.Sinks(nil, quiet, plain), true, true}, {observe.Sinks(observe.Sinks(quiet)), false, true},
		{observe.Sinks(), false, false},
	} {
		s := c.sink.(observe.FilteringSink)
		if got := s.Wants(redeliver.Attempted{}); got != c.attempts {
			t.Errorf("%d wants attempts: %v", i, got)
		}
		if got := s.Wants(redeliver.Committed{}); got != c.attempts {
			t.Errorf("%d wants commits: %v", i, got)
		}
		if got := s.Wants(redeliver.DeadLettered{}); got != c.dead {
			t.Errorf("%d wants dead letters: %v", i, got)
		}
	}
}

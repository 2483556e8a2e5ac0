package observe_test

import (
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
)

// watcher is a redeliver.LoadSink made of a function.
type watcher func(origin, group string) (end func())

func (watcher) Event(redeliver.Event) {}

func (w watcher) Watch(origin, group string, _ func() observe.Load) (end func()) {
	return w(origin, group)
}

// A panic of Watch, or of its end, does not keep other sinks from watching, and a nil end is ignored.
func TestAPanicOfASinkKeepsNoOtherFromWatching(t *testing.T) {
	began, ended := 0, 0
	good := watcher(func(origin, group string) func() {
		if origin != "orders" || group != "billing" {
			t.Errorf("%s of %s is watched", origin, group)
		}
		began++
		return func() { ended++ }
	})
	all, ok := observe.Sinks(
		good,
		watcher(func(string, string) func() { panic("theirs") }),
		watcher(func(string, string) func() { return func() { panic("theirs") } }),
		watcher(func(string, string) func() { return nil }),
		redeliver.SinkFunc(func(redeliver.Event) {}),
		good,
	).(observe.LoadSink)
	if !ok {
		t.Fatal("Sinks of two LoadSinks is not a LoadSink")
	}
	end := all.Watch("orders", "billing", func() observe.Load { return observe.Load{} })
	if began != 2 || ended != 0 {
		t.Errorf("%d began to watch and %d ended, want 2 and 0", began, ended)
	}
	end()
	if ended != 2 {
		t.Errorf("%d got the end, want 2", ended)
	}
}

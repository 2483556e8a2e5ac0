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

// watcher is a observe.LoadSink.
type watcher struct {
	load     func() observe.Load
	over     int
	panicked bool // in a call of load
}

func (w *watcher) Event(redeliver.Event) {}
func (w *watcher) Watch(origin, group string, load func() observe.Load) (end func()) {
	if w.panicked {
		panic("theirs")
	}
	if origin != "orders" || group != "billing" {
		panic("another subscription")
	}
	w.load = load
	return func() {
		if w.over++; w.over > 1 {
			panic("theirs")
		}
	}
}

// The load of a subscription is the sum over its parts, until each has ended.
func TestTheLoadOfASubscriptionIsTheSumOfItsParts(t *testing.T) {
	w := &watcher{}
	sub := &engine.Subscription{Origin: "orders", Group: "billing", Sink: observe.Sinks(redeliver.SinkFunc(func(redeliver.Event) {}), w)}
	end := sub.RegisterLoad()
	want := func(what string, inFlight, held int) {
		t.Helper()
		if got := w.load(); got != (observe.Load{InFlight: inFlight, Held: held}) {
			t.Errorf("%s: the load is %+v, want %d in flight and %d held", what, got, inFlight, held)
		}
	}
	want("before anything is read", 0, 0)
	var one, other observe.Load
	oneOver, otherOver := sub.AddLoad(func() observe.Load { return one }), sub.AddLoad(func() observe.Load { return other })
	one, other = observe.Load{InFlight: 1, Held: 3}, observe.Load{InFlight: 2}
	want("with two parts", 3, 3)
	one = observe.Load{Held: 2}
	want("when one has no message in flight any more", 2, 2)
	oneOver()
	want("when a part has ended", 2, 0)
	otherOver()
	want("at the end", 0, 0)
	end()
	end() // a watcher panics
	if w.over != 2 {
		t.Errorf("the end was reported %d times", w.over)
	}
}

// A panic of Watch is ignored.
func TestASinkThatPanicsWatchesNothing(*testing.T) {
	sub := &engine.Subscription{Origin: "orders", Group: "billing", Sink: &watcher{panicked: true}}
	sub.RegisterLoad()()
	(&engine.Subscription{}).RegisterLoad()()
}

// A message that waits in place counts as held.
func TestAMessageThatWaitsInPlaceIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(20 * time.Second), Order: redeliver.OrderBlocking})
		b.sub.KeepsPlace = true
		want := func(when string, load observe.Load) {
			t.Helper()
			if got := b.sub.Load(); got != load {
				t.Errorf("%s the load is %+v, want %+v", when, got, load)
			}
		}
		b.run(t, handle(func(ctx context.Context, _ *record) error {
			want("while its handler runs", observe.Load{InFlight: 1})
			if st, _ := redeliver.FromContext(ctx); st.Attempts > 0 {
				return nil
			}
			return errTheirs
		}), engine.LaneOptions[*record]{})
		b.publish("a")
		<-time.After(10 * time.Second)
		want("while it waits", observe.Load{Held: 1})
		<-time.After(20 * time.Second)
		want("at the end", observe.Load{})
	})
}

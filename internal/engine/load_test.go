package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// watcher is a redeliver.LoadSink.
type watcher struct {
	load     func() redeliver.Load
	over     int
	panicked bool // in a call of load
}

func (w *watcher) Event(redeliver.Event) {}
func (w *watcher) Watch(origin, group string, load func() redeliver.Load) (end func()) {
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
	sub := &engine.Subscription{Origin: "orders", Group: "billing", Sink: redeliver.Sinks(redeliver.SinkFunc(func(redeliver.Event) {}), w)}
	end := sub.RegisterLoad()
	want := func(what string, inFlight, held int) {
		t.Helper()
		if got := w.load(); got != (redeliver.Load{InFlight: inFlight, Held: held}) {
			t.Errorf("%s: the load is %+v, want %d in flight and %d held", what, got, inFlight, held)
		}
	}
	want("before anything is read", 0, 0)
	var one, other redeliver.Load
	oneOver, otherOver := sub.AddLoad(func() redeliver.Load { return one }), sub.AddLoad(func() redeliver.Load { return other })
	one, other = redeliver.Load{InFlight: 1, Held: 3}, redeliver.Load{InFlight: 2}
	want("with two parts", 3, 3)
	one = redeliver.Load{Held: 2}
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
		want := func(when string, load redeliver.Load) {
			t.Helper()
			if got := b.sub.Load(); got != load {
				t.Errorf("%s the load is %+v, want %+v", when, got, load)
			}
		}
		b.run(t, handle(func(ctx context.Context, _ *record) error {
			want("while its handler runs", redeliver.Load{InFlight: 1})
			if st, _ := redeliver.FromContext(ctx); st.Attempts > 0 {
				return nil
			}
			return errTheirs
		}), engine.LaneOptions[*record]{})
		b.publish("a")
		<-time.After(10 * time.Second)
		want("while it waits", redeliver.Load{Held: 1})
		<-time.After(20 * time.Second)
		want("at the end", redeliver.Load{})
	})
}

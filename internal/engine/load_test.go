package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// watcher is a sink that watches.
type watcher struct {
	broker
	load     func() redeliver.Load
	over     int
	panicked bool // when it is asked
}

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

// What is in hand is that of all parts that read, until each has ended.
func TestTheLoadOfASubscriptionIsThatOfItsParts(t *testing.T) {
	w := &watcher{}
	sub := &engine.Subscription{Origin: "orders", Group: "billing", Sink: redeliver.Sinks(&broker{}, w)}
	end := sub.Watched()
	want := func(what string, inFlight, held int) {
		t.Helper()
		if got := w.load(); got != (redeliver.Load{InFlight: inFlight, Held: held}) {
			t.Errorf("%s: %+v is in hand, want %d in flight and %d held", what, got, inFlight, held)
		}
	}
	want("before anything is read", 0, 0)
	one, other := engine.NewFlight[*flyer](), engine.NewFlight[*flyer]()
	oneOver, otherOver := sub.Carry(one.Load), sub.Carry(other.Load)
	a, b := &flyer{name: "a"}, &flyer{name: "b"}
	one.Begin(a)
	one.Holds(3)
	other.Begin(b)
	other.Begin(&flyer{name: "c"})
	other.Holds(-1) // what is in flight was counted a moment later than all
	want("with two parts", 3, 3)
	one.Land(a, engine.Forwarded)
	one.Holds(2)
	want("when one has landed", 2, 2)
	oneOver()
	want("when a part has ended", 2, 0)
	otherOver()
	want("at the end", 0, 0)
	end()
	end() // who watches panics
	if w.over != 2 {
		t.Errorf("the end was told %d times", w.over)
	}
}

// A sink that panics when it is to watch is as one that does not.
func TestASinkThatPanicsWatchesNothing(*testing.T) {
	sub := &engine.Subscription{Origin: "orders", Group: "billing", Sink: &watcher{panicked: true}}
	sub.Watched()()
	(&engine.Subscription{}).Watched()()
}

// A message that waits in place has no handler meanwhile: it is held.
func TestWhatWaitsInPlaceIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sub := &engine.Subscription{
			Origin: "orders", Group: "billing", Blocking: true, Sink: &broker{},
			Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(20 * time.Second), Order: redeliver.Blocking}.WithDefaults(),
		}
		f := engine.NewFlight[*flyer]()
		defer sub.Carry(f.Load)()
		d := &engine.Delivery{Sub: sub, ID: "1"}
		d.Begin(t.Context())
		e := &flyer{d: d}
		f.Begin(e)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			tk := &task{handle: func(ctx context.Context) error {
				if got := sub.Load(); got != (redeliver.Load{InFlight: 1}) {
					t.Errorf("while its handler runs %+v is in hand", got)
				}
				if st, _ := redeliver.FromContext(ctx); st.Attempts > 0 {
					return nil
				}
				return errTheirs
			}}
			how, _ := tk.work(d)
			f.Land(e, how)
		}()
		<-time.After(10 * time.Second)
		if got := sub.Load(); got != (redeliver.Load{Held: 1}) {
			t.Errorf("while it waits %+v is in hand", got)
		}
		<-ended
		if got := sub.Load(); got != (redeliver.Load{}) {
			t.Errorf("at the end %+v is in hand", got)
		}
	})
}

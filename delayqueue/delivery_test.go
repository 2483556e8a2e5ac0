package delayqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

func TestDeliveryIsFoundInItsContext(t *testing.T) {
	_, d := subscribe(&broker{}, t.Context())
	ctx := context.WithValue(d, key{}, "value")
	if delayqueue.FromContext(ctx) != d {
		t.Error("the delivery is not in its context")
	}
	st, ok := redeliver.FromContext(ctx)
	if !ok || st.ID != "orders/0/1" || st.Origin != "orders" || st.Group != "billing" || st.Attempt() != 1 || st.Source.Offset != 1 {
		t.Errorf("the handler sees %+v, %v", st, ok)
	}
	if delayqueue.FromContext(t.Context()) != nil {
		t.Error("there is a delivery in a context of nobody")
	}
}

func TestDeliveryBringsItsState(t *testing.T) {
	_, d := subscribe(&broker{}, t.Context())
	d.Waited = &redeliver.State{ID: "7", Attempts: 2, Origin: "elsewhere"}
	if st, _ := redeliver.FromContext(d); st != *d.Waited {
		t.Errorf("the handler sees %+v", st)
	}
}

// An attempt in place runs under a delivery of its own, below the same values
// and with the same end.
func TestDeliveryAfterAnAttemptInPlace(t *testing.T) {
	session, end := context.WithCancel(t.Context())
	defer end()
	_, d := subscribe(&broker{}, session)
	outer := context.WithValue(d, key{}, "value")
	second := d.After(redeliver.State{ID: d.ID, Attempts: 1})
	third := second.After(redeliver.State{ID: d.ID, Attempts: 2})
	for i, next := range []*delayqueue.Delivery{second, third} {
		ctx := next.Under(outer)
		st, _ := redeliver.FromContext(ctx)
		if st.Attempt() != i+2 || delayqueue.FromContext(ctx) != next || ctx.Value(key{}) != "value" {
			t.Errorf("attempt %d: the handler sees %+v", i+2, st)
		}
		if next.Sub != d.Sub || next.Record != d.Record || next.ID != d.ID || next.Source != d.Source {
			t.Errorf("attempt %d: the delivery is %+v", i+2, next)
		}
		if ended(ctx) {
			t.Error("the context has ended")
		}
	}
	end()
	if !ended(third.Under(outer)) || !third.Lost() || !second.Lost() || !d.Lost() {
		t.Error("the end of the session did not reach an attempt in place")
	}
}

// The subscriber has the first delivery of a message and asks that one.
func TestDeliveryKnowsThatALaterOneWasForwarded(t *testing.T) {
	sub, d := subscribe(&broker{}, t.Context())
	next := d.After(redeliver.State{ID: d.ID, Attempts: 1}).After(redeliver.State{ID: d.ID, Attempts: 2})
	if d.Forwarded() || next.Forwarded() {
		t.Fatal("forwarded before it was")
	}
	if err := sub.Forward(next, later(t, sub, next), errOurs); err != nil {
		t.Fatal(err)
	}
	if !d.Forwarded() || !next.Forwarded() {
		t.Error("it was forwarded, and nobody knows")
	}
}

// The end of a message's own context, which comes with its ack, is no loss.
func TestDeliveryThatIsOverIsNotLost(t *testing.T) {
	_, d := subscribe(&broker{}, t.Context())
	d.End(nil)
	if d.Lost() || !ended(d) {
		t.Errorf("lost %v, ended %v", d.Lost(), ended(d))
	}
}

// A delivery in place is of the same message, another one is not; and there is a context
// of the attempt that failed where there was one.
func TestDeliveryKnowsItsOwn(t *testing.T) {
	sub, d := subscribe(&broker{}, t.Context())
	second := d.After(redeliver.State{ID: d.ID, Attempts: 1})
	if !second.Same(d) || !d.Same(second) || d.Same(deliver(sub, t.Context())) || d.Same(nil) {
		t.Error("it takes another one for itself, or not itself")
	}
	if ran := d.Ran(); ran != nil {
		t.Errorf("it has not run, in %v", ran)
	}
	own := false
	sub.DeadLetters.(*broker).bury = func(context.Context, int) error {
		ran := d.Ran()
		own = ran != nil && delayqueue.FromContext(ran) == d
		return nil
	}
	(&task{handle: func(context.Context) error { return redeliver.Reject("no") }}).work(d)
	if !own {
		t.Error("what buries it does not see the context it ran in")
	}
}

func TestPatience(t *testing.T) {
	for late, want := range map[time.Duration]time.Duration{0: time.Minute, time.Second: time.Second, time.Hour: time.Hour} {
		if got := (delayqueue.Examination{Late: late}).Patience(); got != want {
			t.Errorf("%s for %s, want %s", got, late, want)
		}
	}
}

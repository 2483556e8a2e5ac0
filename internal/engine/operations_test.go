package engine

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
)

// watchedOperations returns operations, a subscription attached to them, and a function that returns and forgets its
// changes.
func watchedOperations() (*Operations, *Subscription, func() []string) {
	var changes []string
	s := &Subscription{Origin: "orders", Sink: redeliver.SinkFunc(func(e redeliver.Event) {
		if c, ok := e.(redeliver.SubscriptionChanged); ok {
			changes = append(changes, string(c.Change)+": "+c.Detail)
		}
	})}
	o := &Operations{}
	o.Attach(s)
	return o, s, func() []string {
		got := changes
		changes = nil
		return got
	}
}

var (
	errDenied      = errors.New("denied")
	deleteOrders   = Operation{"Delete", "orders"}
	receiveOrders  = Operation{"Receive", "orders"}
	deleteFails    = "an operation fails: Delete on orders; nothing new begins until it works"
	receiveFails   = "an operation fails: Receive on orders"
	deleteWorks    = "an operation works again: Delete on orders"
	receiveWorks   = "an operation works again: Receive on orders"
	receiveIsStale = "an operation works again: Receive on orders: it was not needed again"
)

// A refusal is reported at once, and closes the gate if it stops the subscription. While another operation fails, the
// end of one is not the end of the trouble.
func TestRefusedOperations(t *testing.T) {
	t.Parallel()
	o, s, changes := watchedOperations()
	o.Failed(deleteOrders, errDenied, true, true)
	o.Failed(deleteOrders, errDenied, true, true)
	o.Failed(receiveOrders, errDenied, true, false)
	if got := changes(); !slices.Equal(got, []string{deleteFails, receiveFails}) || !s.Gate.Closed() {
		t.Errorf("two refusals are reported as %q; the gate is closed: %t", got, s.Gate.Closed())
	}
	o.Succeeded(deleteOrders)
	o.Succeeded(deleteOrders)
	if got := changes(); !slices.Equal(got, []string{deleteWorks, receiveFails}) || s.Gate.Closed() {
		t.Errorf("the end of one is reported as %q; the gate is closed: %t", got, s.Gate.Closed())
	}
	o.Succeeded(receiveOrders)
	if got := changes(); !slices.Equal(got, []string{receiveWorks}) {
		t.Errorf("the end of the other is reported as %q", got)
	}
}

// A failure that is no refusal is reported when it lasts, and repeated every minute. It closes no gate. An operation that
// nothing needs any more ends its trouble after five minutes.
func TestLastingFailuresOfOperations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, s, changes := watchedOperations()
		fail := func(d time.Duration) {
			for range d / time.Second {
				o.Failed(receiveOrders, errDenied, false, true)
				<-time.After(time.Second)
			}
		}
		fail(9 * time.Second)
		o.Succeeded(receiveOrders)
		fail(9 * time.Second)
		if got := changes(); got != nil {
			t.Errorf("short failures are reported as %q", got)
		}
		fail(90 * time.Second)
		if got := changes(); !slices.Equal(got, []string{receiveFails, receiveFails}) || s.Gate.Closed() {
			t.Errorf("99 s of failures are reported as %q; the gate is closed: %t", got, s.Gate.Closed())
		}
		if len(o.Failing()) != 1 {
			t.Error("it is forgotten at once")
		}
		<-time.After(6 * time.Minute)
		if failing := o.Failing(); len(failing) > 0 || !slices.Equal(changes(), []string{receiveIsStale}) {
			t.Errorf("after six minutes %v fail", failing)
		}
	})
}

// A subscription that begins while an operation is refused hears of it, and one that ends leaves its gate open.
func TestOperationsOfSeveralSubscriptions(t *testing.T) {
	t.Parallel()
	o, _, _ := watchedOperations()
	o.Failed(deleteOrders, errDenied, true, true)
	heard := 0
	later := &Subscription{Sink: redeliver.SinkFunc(func(redeliver.Event) { heard++ })}
	detach := o.Attach(later)
	if heard != 1 || !later.Gate.Closed() {
		t.Errorf("it heard %d events; its gate is closed: %t", heard, later.Gate.Closed())
	}
	detach()
	o.Succeeded(deleteOrders)
	if heard != 1 || later.Gate.Closed() {
		t.Errorf("after its end it heard %d events; its gate is closed: %t", heard, later.Gate.Closed())
	}
}

// A sink may call its client, whose requests report their results. It must not wait for the lock that its caller holds.
func TestASinkOfOperationsMayMakeRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o Operations
		var changes []redeliver.Change
		s := &Subscription{Origin: "orders"}
		s.Sink = redeliver.SinkFunc(func(e redeliver.Event) {
			if c, ok := e.(redeliver.SubscriptionChanged); ok {
				if changes = append(changes, c.Change); len(changes) == 1 {
					o.Succeeded(deleteOrders)
				}
			}
		})
		o.Attach(s)
		o.Failed(deleteOrders, errDenied, true, true)
		if want := []redeliver.Change{redeliver.ChangeOperationFails, redeliver.ChangeOperationWorks}; !slices.Equal(changes, want) {
			t.Errorf("the sink got %q, want %q", changes, want)
		}
	})
}

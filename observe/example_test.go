package observe_test

import (
	"errors"
	"fmt"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
)

// A sink that pages the person on call. A page of docs shows a part of it; a test compares them.
func ExampleSinks() {
	page := func(text string) { fmt.Println("page:", text) }

	pager := redeliver.SinkFunc(func(e redeliver.Event) {
		switch e := e.(type) {
		case redeliver.DeadLettered:
			page(fmt.Sprintf("%s is dead: %s, %v", e.State.ID, e.State.Reason, e.Err))
		case redeliver.MessagesLost:
			page(fmt.Sprintf("lost from %s: %s", e.Where, e.Detail))
		}
	})
	sink := observe.Sinks(pager, redeliver.NewSlogSink(nil)) // for Config.Sink

	sink.Event(redeliver.DeadLettered{
		State: redeliver.State{ID: "4711", Reason: redeliver.ReasonPermanent}, Where: "orders.billing.dlq", Err: errors.New("no such card"),
	})
	// Output: page: 4711 is dead: permanent, no such card
}

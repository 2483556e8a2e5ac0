package deadletter_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// Errors with different numbers and ids have one cause.
func ExampleFingerprint() {
	var prints []string
	for _, text := range []string{"order 17: card 4711 declined", "order 18: card 0815 declined", "order 19: no such customer"} {
		m := deadletter.Message{State: redeliver.State{Reason: redeliver.ReasonExhausted, Error: text}}
		prints = append(prints, deadletter.Fingerprint(&m))
	}
	fmt.Println(prints[0] == prints[1], prints[0] == prints[2])
	// Output: true false
}

func ExampleNormalise() {
	fmt.Println(deadletter.Normalise("order 17: card 4711 declined"))
	// Output: order <n>: card <n> declined
}

// A filter takes messages for which all that is set holds.
func ExampleFilter_Match() {
	m := deadletter.Message{ID: "orders/0/17", State: redeliver.State{Reason: redeliver.ReasonExhausted, Error: "bank is down"}}
	f := deadletter.Filter{Reasons: []redeliver.Reason{redeliver.ReasonExhausted}, ErrorText: "bank"}
	fmt.Println(f.Match(&m))
	f.ErrorText = "card"
	fmt.Println(f.Match(&m))
	// Output:
	// true
	// false
}

// The usual way after an incident: look at the causes, then replay one of them, a single message first.
func Example() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	var queue deadletter.Queue // client.DeadLetters of redeliver's client on the broker
	summary, err := deadletter.Groups(ctx, queue, deadletter.Filter{})
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range summary.Groups {
		fmt.Println(g.Count, g.Fingerprint, g.Error)
	}
	task, err := deadletter.Run(ctx, queue, deadletter.Replay{
		Who: "ann", Why: "the bank is back",
		Filter: deadletter.Filter{Fingerprints: []string{summary.Groups[0].Fingerprint}},
		Canary: []int{1, 10}, Watch: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(task.Status, task.Counts.Replayed)
}

// A purge removes what a filter takes, and refuses if that is more than expected.
func ExamplePurge() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	var queue deadletter.Queue // see Example
	task, err := deadletter.Purge(ctx, queue, deadletter.Removal{
		Who: "ann", Why: "test orders", Expect: 3, Filter: deadletter.Filter{Headers: map[string]string{"test": "yes"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(task.Status)
}

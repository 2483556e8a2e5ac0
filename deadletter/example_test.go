package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/redelivertest"
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

// A filter matches messages that match all of its fields.
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
func Example() {
	b, end := newBroker() // instead of your client
	defer end()
	ctx, bank := context.Background(), errors.New("bank is down")
	orders := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}}).
		Handle("orders", func(*message.Message) error { return bank })
	b.Publish("orders", message.NewMessage("4711", nil), message.NewMessage("4712", nil))
	b.Wait()
	bank = nil // it works again

	queue := orders.DeadLetterQueue() // client.DeadLetters of redeliver's client on the broker
	defer queue.Close()
	summary, err := deadletter.Groups(ctx, queue, deadletter.Filter{})
	if err != nil {
		log.Panic(err)
	}
	for _, cause := range summary.Groups {
		fmt.Println(cause.Count, cause.Reason, cause.Error)
	}
	task, err := deadletter.Replay(ctx, queue, deadletter.ReplayOptions{
		Who: "ann", Why: "the bank is back",
		Filter: deadletter.Filter{Fingerprints: []string{summary.Groups[0].Fingerprint}},
		Canary: []int{1}, Watch: 10 * time.Millisecond,
	})
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(task.Status, task.Counts.Replayed)
	// Output:
	// 2 exhausted bank is down
	// done 2
}

// A loop over Browse reads the DLQ, and stops reading when it breaks.
func ExampleBrowse() {
	b, end := newBroker() // instead of your client
	defer end()
	orders := b.Open(redelivertest.Config{Group: "billing"}).Handle("orders", func(*message.Message) error {
		return redeliver.Permanent(errors.New("a test order"))
	})
	b.Publish("orders", message.NewMessage("4711", nil), message.NewMessage("4712", nil))
	b.Wait()

	queue := orders.DeadLetterQueue() // client.DeadLetters of redeliver's client on the broker
	defer queue.Close()
	for m, err := range deadletter.Browse(context.Background(), queue, deadletter.Filter{IDs: []string{"4711", "4713"}}) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(m.ID, m.State.Error)
		break // one is enough
	}
	// Output: 4711 a test order
}

// A purge removes the messages that match a filter. It refuses if there are more than expected.
func ExamplePurge() {
	b, end := newBroker() // instead of your client
	defer end()
	orders := b.Open(redelivertest.Config{Group: "billing"}).Handle("orders", func(*message.Message) error {
		return redeliver.Permanent(errors.New("a test order"))
	})
	test := message.NewMessage("4711", nil)
	test.Metadata.Set("test", "yes")
	b.Publish("orders", test, message.NewMessage("4712", nil))
	b.Wait()

	queue := orders.DeadLetterQueue() // client.DeadLetters of redeliver's client on the broker
	defer queue.Close()
	task, err := deadletter.Purge(context.Background(), queue, deadletter.PurgeOptions{
		Who: "ann", Why: "test orders", Expect: 1, Filter: deadletter.Filter{Headers: map[string]string{"test": "yes"}},
	})
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(task.Status, task.Counts.Purged)
	// Output: done 1
}

package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// A service has a Router, and client.Subscriber() and client.Publisher() of its redeliver client.
var (
	router     *message.Router
	subscriber message.Subscriber
	publisher  message.Publisher
)

func charge(*message.Message) error { return nil }

// One Retry serves all handlers of a Router.
func ExampleRetry() {
	b, end := newBroker() // in the place of your client
	defer end()
	billing := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{Backoff: redeliver.Fixed(10 * time.Millisecond)}})

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		log.Panic(err)
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), func(msg *message.Message) error {
		state, _ := redeliver.FromContext(msg.Context())
		if state.Attempt() < 3 {
			return errors.New("bank is busy")
		}
		fmt.Printf("charged %s, attempt %d\n", msg.UUID, state.Attempt())
		return nil
	})
	b.Start(router)

	b.Publish("orders", message.NewMessage("4711", []byte("card 17")))
	b.Wait()
	// Output: charged 4711, attempt 3
}

// A hundred messages, or those of 50 ms, are stored at once. An error would retry all of them.
func ExampleBatch() {
	b, end := newBroker() // in the place of your client
	defer end()
	search := b.Open(redelivertest.Config{Group: "search"})

	config := redeliver.BatchConfig{Size: 100, Timeout: 50 * time.Millisecond}
	index, err := middleware.Batch(config, func(_ context.Context, b *middleware.MessageBatch) error {
		for _, m := range b.Messages {
			if len(m.Record.Payload) == 0 {
				m.Reject("a document has a text") // only this one, at once
			}
		}
		return nil // the others are done
	})
	if err != nil {
		log.Panic(err)
	}
	documents := search.Handle("documents", index)

	b.Publish("documents", message.NewMessage("1", []byte("Dear Sir")), message.NewMessage("2", nil))
	for _, dead := range documents.DeadLetters() {
		fmt.Println(dead.Message.UUID, dead.State.Error)
	}
	// Output: 2 rejected: a document has a text
}

// Messages that were handled before are acked. With Redis as the store all processes share the marks.
func ExampleDedup() { //nolint:testableexamples // it needs a broker
	dedup, err := middleware.Dedup(middleware.DedupConfig{TTL: time.Hour})
	if err != nil {
		log.Panic(err)
	}
	router.AddMiddleware(middleware.Retry(), dedup) // Retry is the outermost
}

// A refused publish is a failed attempt of the message that caused it.
func ExamplePublishInside() { //nolint:testableexamples // it needs a broker
	invoice := middleware.PublishInside(publisher, "invoices")(func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("invoice-"+msg.UUID, msg.Payload)}, nil
	})
	router.AddConsumerHandler("invoice", "orders", subscriber, func(msg *message.Message) error {
		_, err := invoice(msg)
		return err
	})
}

// A producer numbered its messages per account, and they are handled in that order.
func ExampleResequence() { //nolint:testableexamples // it needs a broker
	resequence, err := middleware.Resequence(middleware.ResequenceConfig{
		Sequence: func(msg *message.Message) (stream string, number uint64, ok bool) {
			number, err := strconv.ParseUint(msg.Metadata["number"], 10, 64)
			return msg.Metadata["account"], number, err == nil
		},
	})
	if err != nil {
		log.Panic(err)
	}
	router.AddMiddleware(middleware.Retry(), resequence)
}

// A program receives messages when it has time for them.
func ExampleReceiver() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	receiver, err := middleware.NewReceiver(ctx, subscriber, "orders")
	if err != nil {
		log.Panic(err)
	}
	defer receiver.Close()
	received, err := receiver.Receive(ctx, 16, 30*time.Second)
	if err != nil {
		log.Print(err)
		return
	}
	for _, m := range received {
		if err := charge(m.Message); err != nil {
			continue // it comes again when its 30 s are over
		}
		if err := m.Ack(); err != nil {
			fmt.Println("it may run again:", err)
		}
	}
}

package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
)

var urls = []string{"amqp://guest:guest@localhost:5672/"}

// A service that reads a queue with amqp091-go keeps its message type.
func ExampleConsume() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	err := amqp.Consume(ctx, amqp.Config{URLs: urls}, []string{"orders"}, func(_ context.Context, d amqp091.Delivery) error {
		if len(d.Body) == 0 {
			return redeliver.Permanent(errors.New("an order has a body"))
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

// The handler gets up to fifty deliveries at once and answers each of them.
func ExampleConsumeBatch() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	err := amqp.ConsumeBatch(ctx, amqp.Config{URLs: urls}, []string{"orders"}, redeliver.BatchConfig{Size: 50, Timeout: time.Second},
		func(_ context.Context, b *amqp.Batch) error {
			for _, m := range b.Messages {
				fmt.Println(m.Record.MessageId)
			}
			return nil
		})
	if err != nil {
		log.Fatal(err)
	}
}

// Plan reports what a start would create, and creates nothing.
func ExampleOpen_plan() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	client, err := amqp.Open(ctx, amqp.Config{URLs: urls, Policy: redeliver.Policy{Backoff: redeliver.RocketMQ()}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	plan, err := client.Plan(ctx, "orders")
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(plan)
}

// With OrderThroughRetries a header can be the key.
func ExampleKeyHeader() {
	key := amqp.KeyHeader("customer")
	fmt.Println(key(amqp091.Delivery{Headers: amqp091.Table{"customer": "c-17"}}))
	// Output: c-17
}

// Open refuses a configuration that cannot work, with all of its problems.
func ExampleOpen_refused() {
	_, err := amqp.Open(context.Background(), amqp.Config{URLs: urls, MaxRetriesInFlight: 100_000, ConsumerTimeout: -time.Hour})
	fmt.Println(err)
	// Output: amqp: configuration refused: MaxRetriesInFlight is 100000: must be from 1 to 65535, or 0 for the default; ConsumerTimeout is -1h0m0s: must be at least 1s, or 0 for the default
}

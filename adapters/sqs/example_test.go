package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
)

// A service that reads a queue with the SDK keeps its message type. The SDK finds the AWS configuration as usual.
func ExampleConsume() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	err := sqs.Consume(ctx, sqs.Config{}, []string{"orders"}, func(_ context.Context, m types.Message) error {
		if m.Body == nil {
			return redeliver.Permanent(errors.New("an order has a body"))
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

// The handler gets up to fifty messages at once and answers each of them.
func ExampleConsumeBatch() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	err := sqs.ConsumeBatch(ctx, sqs.Config{}, []string{"orders"}, sqs.BatchConfig{Size: 50, Timeout: time.Second},
		func(_ context.Context, b *sqs.Batch) error {
			for _, m := range b.Messages {
				fmt.Println(*m.Message.MessageId)
			}
			return nil
		})
	if err != nil {
		log.Fatal(err)
	}
}

// Plan reports what a start would create, and creates nothing. The endpoint is an ElasticMQ in the place of AWS.
func ExampleClient_Plan() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	client, err := sqs.Open(ctx, sqs.Config{Endpoint: "http://localhost:9324"})
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

// Open refuses a configuration that cannot work, with all of its problems.
func ExampleOpen_refused() {
	_, err := sqs.Open(context.Background(), sqs.Config{VisibilityTimeout: 24 * time.Hour, Pollers: 200})
	fmt.Println(err)
	// Output: sqs: configuration refused: Pollers is 200: must be from 1 to 100, or 0 for the default; VisibilityTimeout is 24h0m0s: must be whole seconds from 1s to 12h0m0s, or 0 for the default
}

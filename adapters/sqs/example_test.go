package sqs_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
)

// A service that reads a queue with the SDK keeps its message type.
func ExampleConsume() {
	ctx, stop := context.WithCancel(context.Background())
	charge := func(_ context.Context, order string) error {
		fmt.Printf("charged %s\n", order)
		stop()
		return nil
	}
	cfg := sqs.ServerWith("4711") // a server inside this process; an empty sqs.Config uses AWS like the SDK
	err := sqs.Consume(ctx, cfg, []string{"orders"}, func(ctx context.Context, m types.Message) error {
		return charge(ctx, *m.Body) // an error: again after 1, 2 and 4 s plus jitter, then the DLQ
	})
	if err != nil {
		log.Print(err)
	}
	// Output: charged 4711
}

// Up to three messages at once, each with an answer of its own.
func ExampleConsumeBatch() {
	ctx, stop := context.WithCancel(context.Background())
	cfg := sqs.ServerWith("4711", "4712", "no order")
	err := sqs.ConsumeBatch(ctx, cfg, []string{"orders"}, redeliver.BatchConfig{Size: 3, Timeout: time.Minute},
		func(_ context.Context, b *sqs.Batch) error {
			defer stop()
			for _, m := range b.Messages {
				if *m.Record.Body == "no order" {
					m.Reject("not an order") // this one to the DLQ
				}
			}
			fmt.Println(len(b.Messages), "at once")
			return nil // the others are done
		})
	if err != nil {
		log.Print(err)
	}
	// Output: 3 at once
}

// Plan reports what a start would create, and creates nothing. The endpoint is an ElasticMQ instead of AWS.
func ExampleOpen_plan() { //nolint:testableexamples // it needs a broker
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

// Command sqs-batch indexes documents of a queue, up to 10 at a time, with the types of the SQS client and without
// Watermill:
//
//	sqs-batch documents
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cfg, err := config.LoadDefaultConfig(ctx)
	check(err)
	check(sqs.ConsumeBatch(ctx, sqs.Config{AWS: &cfg}, os.Args[1:2], redeliver.BatchConfig{Size: 10, Timeout: time.Second}, index))
}

func index(_ context.Context, b *sqs.Batch) error {
	for _, m := range b.Messages {
		switch {
		case *m.Record.Body == "locked" && m.State().Attempt() == 1:
			m.RetryAfter(time.Second) // this one; the other messages do not wait
		case *m.Record.Body == "garbled":
			m.Reject("no such language") // to the DLQ
		default:
			fmt.Printf("%s is indexed\n", *m.Record.Body)
		}
	}
	return nil // the rest is done
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

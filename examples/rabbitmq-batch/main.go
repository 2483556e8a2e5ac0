// Command rabbitmq-batch indexes documents of a queue, up to 10 at a time, with the types of the RabbitMQ client and
// without Watermill:
//
//	rabbitmq-batch documents amqp://localhost
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	check(amqp.ConsumeBatch(ctx, amqp.Config{URLs: os.Args[2:]}, os.Args[1:2], redeliver.BatchConfig{Size: 10, Timeout: time.Second}, index))
}

func index(_ context.Context, b *amqp.Batch) error {
	for _, m := range b.Messages {
		switch {
		case string(m.Record.Body) == "locked" && m.State().Attempt() == 1:
			m.RetryAfter(time.Second) // this one; the other messages do not wait
		case string(m.Record.Body) == "garbled":
			m.Reject("no such language") // to the DLQ
		default:
			fmt.Printf("%s is indexed\n", m.Record.Body)
		}
	}
	return nil // the rest is done
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

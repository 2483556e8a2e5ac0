// Command after is the service of command before with redeliver: what fails waits
// and comes again, three times, and ends in the DLQ with the reason. The handler
// is the same; the loop, and what it did about connections, is gone.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	retries "github.com/redeliver/redeliver/adapters/amqp"
)

func main() {
	if err := consume(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func consume(url, queue string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return retries.Consume(ctx, retries.Config{
		URLs:   []string{url},
		Policy: redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(time.Second)},
	}, []string{queue}, charge)
}

func charge(_ context.Context, d amqp.Delivery) error {
	if d.Type != "card" {
		return errors.New("no such card")
	}
	fmt.Printf("charged %s\n", d.MessageId)
	return nil
}

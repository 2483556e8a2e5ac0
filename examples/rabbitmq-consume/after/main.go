// Command after is the service in ../before with redeliver. A failed message is retried three times with delays,
// and then goes to the DLQ with the reason. The handler is unchanged. One call replaces the loop and its handling of
// connections.
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

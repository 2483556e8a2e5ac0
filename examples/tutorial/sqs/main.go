// Command sqs is the program of docs/tutorials/sqs.md. It charges orders.
// With an order number as its argument it places that order.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/middleware"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	billing, err := sqs.Open(ctx, sqs.Config{
		Endpoint: os.Getenv("SQS"), // a server in place of SQS, such as ElasticMQ; empty for AWS
		Policy:   redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(time.Second)},
	})
	if err != nil {
		return err
	}
	defer billing.Close(context.WithoutCancel(ctx)) // after the router

	if len(os.Args) > 1 {
		return billing.Publisher().Publish("orders", message.NewMessage(os.Args[1], []byte(`{"euros":40}`)))
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), charge)
	return router.Run(ctx)
}

func charge(msg *message.Message) error {
	if os.Getenv("BANK") == "down" {
		return errors.New("bank is down")
	}
	log.Printf("charged order %s", msg.UUID)
	return nil
}

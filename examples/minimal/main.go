// Command minimal is a consumer with retries and a dead-letter queue. The README shows parts of it.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
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
	billing, err := kafka.Open(ctx, kafka.Config{
		Brokers: []string{"localhost:9092"}, Group: "billing",
		Policy: redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Exponential()},
	})
	if err != nil {
		return err
	}
	defer billing.Close(context.WithoutCancel(ctx)) // after the router

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NewSlogLogger(nil))
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), charge)
	return router.Run(ctx)
}

func charge(msg *message.Message) error {
	log.Printf("charging %s", msg.UUID)
	return errors.New("bank is down") // again after 1, 2 and 4 s plus jitter, then the DLQ
}

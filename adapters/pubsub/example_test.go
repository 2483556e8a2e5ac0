package pubsub_test //nolint:testableexamples // it needs a broker

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/pubsub"
	"github.com/redeliver/redeliver/middleware"
)

// For example from watermill-redisstream; the subscriber has the consumer group billing.
var (
	pub message.Publisher
	sub message.Subscriber
)

// A page of docs contains a part of this example; a test compares them.
func Example() {
	if err := charging(context.Background(), func(*message.Message) error { return errors.New("card declined") }); err != nil {
		log.Fatal(err)
	}
}

func charging(ctx context.Context, charge message.NoPublishHandlerFunc) error {
	billing, err := pubsub.Open(ctx, pubsub.Config{
		Publisher: pub, Subscriber: sub, Group: "billing",
		Confirms:   true,             // Publish returns nil when the broker has the message
		MaxUnacked: 10 * time.Minute, // how long the subscriber leaves a message with its consumer
		Policy:     redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Exponential()},
	})
	if err != nil {
		return err
	}
	defer billing.Close(context.WithoutCancel(ctx))
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NewSlogLogger(nil))
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), charge)
	return router.Run(ctx)
}

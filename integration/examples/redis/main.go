// Command redis has retries and a dead-letter queue on Redis Streams, by Watermill's own Pub/Sub. Not in examples/: the
// library requires no client of Redis Streams.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/pubsub"
	"github.com/redeliver/redeliver/middleware"
)

func main() {
	ctx, quiet := context.Background(), watermill.NopLogger{}
	client, topic := redis.NewClient(&redis.Options{Addr: os.Args[1], PoolSize: 50}), "orders-"+watermill.NewShortUUID()
	pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, quiet)
	check(err)
	sub, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{Client: client, ConsumerGroup: "billing", DisableIndefiniteInitialBlock: true}, quiet)
	check(err)
	over := make(chan string, 2)
	billing, err := pubsub.Open(ctx, pubsub.Config{
		Publisher: pub, Subscriber: sub, Group: "billing", MaxInFlight: 4, Confirms: true, MaxUnacked: time.Minute, // redisstream's MaxIdleTime
		Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Second), Timeout: 10 * time.Second},
		Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			switch e := e.(type) {
			case redeliver.Committed:
				over <- e.State.ID + " is charged"
			case redeliver.DeadLettered:
				over <- fmt.Sprintf("%s is dead after %d attempts: %s", e.State.ID, e.State.Attempts, e.State.Error)
			}
		})})
	check(err)
	check(pub.Publish(topic, message.NewMessage("o-1", []byte("paid")), message.NewMessage("o-2", []byte("declined"))))
	router, err := message.NewRouter(message.RouterConfig{}, quiet)
	check(err)
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("charge", topic, billing.Subscriber(), func(msg *message.Message) error {
		return map[string]error{"declined": errors.New("card declined")}[string(msg.Payload)]
	})
	go func() { check(router.Run(ctx)) }()
	fmt.Printf("%s\n%s\n", <-over, <-over)
	check(errors.Join(router.Close(), billing.Close(ctx), sub.Close()))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Command dedup charges an order once, even if its shop sends it twice, on a Kafka in this process. A retry is no
// duplicate. For many processes, middleware/redisdedup has a store.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/middleware"
)

func charge(msg *message.Message) error {
	st, _ := redeliver.FromContext(msg.Context())
	if msg.UUID == "o-2" && st.Attempt() == 1 {
		return errors.New("bank is down")
	}
	fmt.Printf("%s is charged, attempt %d\n", msg.UUID, st.Attempt())
	return nil
}

func main() {
	ctx := context.Background()
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	defer cluster.Close()
	committed := make(chan bool, 3)
	billing, err := kafka.Open(ctx, kafka.Config{Brokers: cluster.ListenAddrs(), Group: "billing", Sink: redeliver.SinkFunc(func(e redeliver.Event) {
		if _, ok := e.(redeliver.Committed); ok {
			committed <- true
		}
	})})
	check(err)
	for _, id := range []string{"o-1", "o-2", "o-1"} { // the id is the message's UUID
		check(billing.Publisher().Publish("orders", message.NewMessage(id, []byte("40 euros"))))
	}
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	check(err)
	dedup, err := middleware.Dedup(middleware.DedupConfig{Skipped: func(msg *message.Message) { fmt.Println(msg.UUID, "was charged before") }})
	check(err)
	router.AddMiddleware(middleware.Retry(), dedup)
	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), charge)
	go func() { check(router.Run(ctx)) }()
	for range 3 {
		<-committed
	}
	check(errors.Join(router.Close(), billing.Close(ctx)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

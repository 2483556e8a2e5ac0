// Command broadcast has two shops learn every price, on a Kafka in this process: no
// group shares them. A shop that fails says so, and goes on with the next price.
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

func main() {
	ctx := context.Background()
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "prices"))
	defer cluster.Close()
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	check(err)
	router.AddMiddleware(middleware.Retry(middleware.AllowBroadcast)) // retries nothing here: it says why a handler has failed
	over := make(chan string, 6)
	for _, shop := range []string{"Bonn", "Kiel"} { // in life each is a process
		prices, err := kafka.OpenBroadcast(ctx, kafka.BroadcastConfig{Brokers: cluster.ListenAddrs(), Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			if failed, ok := e.(redeliver.BroadcastFailed); ok {
				over <- fmt.Sprintf("%s does not know %s: %v", shop, failed.State.ID, failed.Err)
			}
		})})
		check(err)
		router.AddConsumerHandler(shop, "prices", prices, func(msg *message.Message) error {
			if shop == "Kiel" && msg.UUID == "tea" {
				return errors.New("no such shelf")
			}
			over <- fmt.Sprintf("%s knows %s: %s", shop, msg.UUID, msg.Payload)
			return nil
		})
	}
	go func() { check(router.Run(ctx)) }()
	<-router.Running() // what is published before a process listens, it never sees
	office, err := kafka.Open(ctx, kafka.Config{Brokers: cluster.ListenAddrs(), Group: "office", Sink: redeliver.Sinks()})
	check(err)
	for _, ware := range []string{"coffee", "tea", "milk"} {
		check(office.Publisher().Publish("prices", message.NewMessage(ware, []byte("4 euros"))))
	}
	for range 6 {
		fmt.Println(<-over)
	}
	check(errors.Join(router.Close(), office.Close(ctx))) // the router closes the broadcast consumers
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

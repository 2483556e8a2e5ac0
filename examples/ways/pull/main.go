// Command pull requests orders when it has time for them, with a Kafka in this process. It has no handler and no
// Router.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/observe"
)

func main() {
	ctx := context.Background()
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	defer cluster.Close()
	billing, err := kafka.Open(ctx, kafka.Config{Brokers: cluster.ListenAddrs(), Group: "billing", Sink: observe.Sinks()})
	check(err)
	for _, id := range []string{"o-1", "o-2", "o-3"} {
		check(billing.Publisher().Publish("orders", message.NewMessage(id, []byte("40 euros"))))
	}
	orders, err := middleware.NewReceiver(ctx, billing.Subscriber(), "orders")
	check(err)
	for left := 3; left > 0; {
		received, err := orders.Receive(ctx, 16, time.Second) // hidden from other consumers for a second
		check(err)
		for _, m := range received {
			id := m.Message.UUID
			state, _ := redeliver.FromContext(m.Message.Context())
			switch {
			case id == "o-2" && state.Attempt() == 1:
				fmt.Println("o-2 is left alone: it comes again when its second is over")
			case id == "o-3" && state.Attempt() == 1:
				check(m.ChangeInvisible(0)) // make it visible now
			default:
				check(m.Ack())
				fmt.Printf("%s is charged, attempt %d\n", id, state.Attempt())
				left--
			}
		}
	}
	orders.Close()
	check(billing.Close(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

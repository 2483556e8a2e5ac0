// Command order shows which messages wait: Ann's first order takes time, her second fails once, the fourth is Bob's.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/middleware"
)

func main() {
	for _, order := range []redeliver.Order{redeliver.OrderFirstAttempts, redeliver.OrderNone, redeliver.OrderBlocking, redeliver.OrderThroughRetries} {
		fmt.Println(order, "is done with", run(redeliver.Policy{Order: order, Backoff: redeliver.Fixed(time.Second)}))
	}
}

func run(policy redeliver.Policy) (done []string) {
	ctx, ended := context.Background(), make(chan string, 4)
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	defer cluster.Close()
	billing, err := kafka.Open(ctx, kafka.Config{Brokers: cluster.ListenAddrs(), Group: "billing", Policy: policy, Sink: redeliver.SinkFunc(func(redeliver.Event) {})})
	check(err)
	for _, order := range [][2]string{{"1", "Ann"}, {"2", "Ann"}, {"3", "Ann"}, {"4", "Bob"}} {
		msg := message.NewMessage(order[0], nil)
		kafka.SetKey(msg, []byte(order[1]))
		check(billing.Publisher().Publish("orders", msg))
	}
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	check(err)
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), func(msg *message.Message) error {
		switch st, _ := redeliver.FromContext(msg.Context()); {
		case msg.UUID == "1":
			<-time.After(500 * time.Millisecond)
		case msg.UUID == "2" && st.Attempt() == 1:
			return errors.New("bank is down")
		}
		ended <- msg.UUID
		return nil
	})
	go func() { check(router.Run(ctx)) }()
	done = []string{<-ended, <-ended, <-ended, <-ended}
	check(errors.Join(router.Close(), billing.Close(ctx)))
	return done
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

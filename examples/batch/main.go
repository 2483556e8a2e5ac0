// Command batch indexes documents, up to 10 at a time, with a Kafka in this process.
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
)

func index(_ context.Context, b *middleware.MessageBatch) error {
	fmt.Printf("a batch of %d\n", len(b.Messages))
	for _, m := range b.Messages {
		switch string(m.Record.Payload) {
		case "document 3":
			if m.State().Attempt() == 1 {
				m.RetryAfter(time.Second) // it is locked; the other messages do not wait
			}
		case "document 7":
			m.Reject("no such language") // to the DLQ
		}
	}
	return nil // the rest is acked
}

func main() {
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "documents"))
	defer cluster.Close()
	events := make(chan redeliver.Event, 1000)
	search, err := kafka.Open(context.Background(), kafka.Config{Brokers: cluster.ListenAddrs(), Group: "search",
		Sink: redeliver.SinkFunc(func(e redeliver.Event) { events <- e })})
	check(err)
	for i := range 25 {
		check(search.Publisher().Publish("documents", message.NewMessage(fmt.Sprint("d-", i), fmt.Append(nil, "document ", i))))
	}
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	check(err)
	batch, err := middleware.Batch(redeliver.BatchConfig{Timeout: time.Second}, index)
	check(err)
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("index", "documents", search.Subscriber(), batch)
	go func() { check(router.Run(context.Background())) }()
	indexed, dead := report(events, 25)
	check(router.Close())
	check(search.Close(context.Background())) // after the router
	fmt.Printf("%d indexed, %d in documents.search.dlq\n", indexed, dead)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Command resequence handles the versions of a document in the order of their numbers, in whatever order they arrive,
// with a Kafka in this process.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/observe"
)

// version returns a message's document and its number, from 1.
func version(msg *message.Message) (document string, number uint64, ok bool) {
	number, err := strconv.ParseUint(msg.Metadata["version"], 10, 64)
	return msg.Metadata["document"], number, err == nil
}

func main() {
	ctx := context.Background()
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "documents"))
	defer cluster.Close()
	search, err := kafka.Open(ctx, kafka.Config{Brokers: cluster.ListenAddrs(), Group: "search", Sink: observe.Sinks()})
	check(err)
	for _, number := range []string{"4", "2", "3", "1"} { // without a key, so they run in parallel
		msg := message.NewMessage("d-17 v"+number, nil)
		msg.Metadata["document"], msg.Metadata["version"] = "d-17", number
		check(search.Publisher().Publish("documents", msg))
	}
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	check(err)
	done := make(chan string, 4)
	resequence, err := middleware.Resequence(middleware.ResequenceConfig{Sequence: version})
	check(err)
	router.AddMiddleware(middleware.Retry(), resequence)
	router.AddConsumerHandler("index", "documents", search.Subscriber(), func(msg *message.Message) error {
		done <- msg.UUID
		return nil
	})
	go func() { check(router.Run(ctx)) }()
	for range 4 {
		fmt.Println(<-done, "is indexed")
	}
	check(errors.Join(router.Close(), search.Close(ctx)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Command kafka-batch indexes documents of a topic, up to 10 at a time, with its own sarama client and without
// Watermill:
//
//	kafka-batch documents localhost:9092
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	client, err := sarama.NewClient(os.Args[2:], config)
	check(err)
	check(kafka.ConsumeBatch(ctx, client, kafka.Config{Group: "search"}, os.Args[1:2], redeliver.BatchConfig{Size: 10, Timeout: time.Second}, index))
	check(client.Close())
}

func index(_ context.Context, b *kafka.Batch) error {
	for _, m := range b.Messages {
		switch {
		case string(m.Record.Value) == "locked" && m.State().Attempt() == 1:
			m.RetryAfter(time.Second) // this one; the other messages do not wait
		case string(m.Record.Value) == "garbled":
			m.Reject("no such language") // to the DLQ
		default:
			fmt.Printf("%s is indexed\n", m.Record.Value)
		}
	}
	return nil // the rest is done
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Command after is the service in ../before with retries and a dead-letter queue. Its client and its handler are
// unchanged. One call replaces the group and its loop.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	client, err := sarama.NewClient(os.Args[2:], config)
	check(err)
	check(kafka.Consume(ctx, client, kafka.Config{Group: "billing"}, os.Args[1:2], charge))
	check(client.Close())
}

func charge(_ context.Context, order *sarama.ConsumerMessage) error {
	if string(order.Value) == "declined" {
		return errors.New("card declined")
	}
	fmt.Printf("order %s is charged\n", order.Key)
	return nil
}

func check(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

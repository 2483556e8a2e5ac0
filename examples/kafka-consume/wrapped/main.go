// Command wrapped is the service in ../before with retries and a dead-letter queue. It keeps its own consumer
// group and wraps the group's handler.
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
	group, err := sarama.NewConsumerGroupFromClient("billing", client)
	check(err)
	consumer, err := kafka.Wrap(ctx, client, group, kafka.Config{Group: "billing"}, os.Args[1:2], charge)
	check(err)
	for ctx.Err() == nil {
		check(group.Consume(ctx, consumer.Topics(), consumer))
	}
	check(errors.Join(consumer.Close(ctx), group.Close(), client.Close()))
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

// Command before charges orders from Kafka, as many services do: with its own consumer group, and without retries. A
// failed order is logged and lost.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/IBM/sarama"
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
	for ctx.Err() == nil {
		check(group.Consume(ctx, os.Args[1:2], consumer{}))
	}
	check(errors.Join(group.Close(), client.Close()))
}

type consumer struct{}

func (consumer) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (consumer) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (consumer) ConsumeClaim(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for order := range claim.Messages() {
		if err := charge(sess.Context(), order); err != nil {
			log.Printf("order %s is not charged: %v", order.Key, err)
		}
		sess.MarkMessage(order, "")
	}
	return nil
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

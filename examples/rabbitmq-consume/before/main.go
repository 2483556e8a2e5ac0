// Command before is a service on RabbitMQ with its own consume loop. A failed message is requeued at once and delivered
// again at once, forever. ../after is the same service with redeliver.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	amqp "github.com/rabbitmq/amqp091-go"
)

func main() {
	if err := consume(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func consume(url, queue string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(100, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for d := range deliveries {
		if err := charge(ctx, d); err != nil {
			log.Printf("%s: %v", d.MessageId, err)
			_ = d.Nack(false, true)
			continue
		}
		_ = d.Ack(false)
	}
	return nil
}

func charge(_ context.Context, d amqp.Delivery) error {
	if d.Type != "card" {
		return errors.New("no such card")
	}
	fmt.Printf("charged %s\n", d.MessageId)
	return nil
}

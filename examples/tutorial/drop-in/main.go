// Command drop-in is the program of docs/tutorials/drop-in.md: a service with a client and
// a handler of its own.
package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest // sarama's default skips what was written before
	client, err := sarama.NewClient([]string{cmp.Or(os.Getenv("KAFKA"), "localhost:9092")}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	return kafka.Consume(ctx, client, kafka.Config{Group: "billing"}, []string{"orders"}, charge)
}

func charge(ctx context.Context, order *sarama.ConsumerMessage) error {
	if string(order.Value) == "no card" {
		return redeliver.Permanent(errors.New("no such card")) // the DLQ now
	}
	state, _ := redeliver.FromContext(ctx)
	if state.Attempt() < 3 {
		return errors.New("bank is busy") // again after 1, 2 and 4 s plus jitter, then the DLQ
	}
	log.Printf("charged %s, attempt %d", order.Key, state.Attempt())
	return nil
}

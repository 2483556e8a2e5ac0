package kafka_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/middleware"
)

// A page of docs shows a part of it; a test compares them.
func ExamplePublisher() { //nolint:testableexamples // it needs a broker
	if err := publishing(context.Background(), invoice); err != nil {
		log.Fatal(err)
	}
}

func publishing(ctx context.Context, invoice message.HandlerFunc) error {
	billing, err := kafka.Open(ctx, kafka.Config{Brokers: []string{"localhost:9092"}, Group: "billing"})
	if err != nil {
		return err
	}
	defer billing.Close(context.WithoutCancel(ctx))
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NewSlogLogger(nil))
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Retry())

	publisher := billing.Publisher()
	order := message.NewMessage("4711", []byte(`{"euros":40}`)) // its UUID is its id through all attempts
	kafka.SetKey(order, []byte("customer-17"))                  // of one key one runs after another
	if err := publisher.Publish("orders", order); err != nil {  // nil: all in-sync replicas have it
		return err
	}

	reminder := message.NewMessage("4711-reminder", []byte(`{"euros":40}`))
	delay.Message(reminder, delay.For(24*time.Hour)) // or delay.Until(t), of Watermill's components/delay
	if err := publisher.Publish("orders", reminder); err != nil {
		return err
	}

	inside := middleware.PublishInside(publisher, "invoices")(invoice) // invoice returns the messages to publish
	router.AddConsumerHandler("invoice", "orders", billing.Subscriber(), func(msg *message.Message) error {
		_, err := inside(msg)
		return err
	})

	return router.Run(ctx)
}

// The README shows a part of it; a test compares them.
func ExampleConsume() { //nolint:testableexamples // it needs a broker
	if err := consuming(context.Background(), func(context.Context, []byte) error { return nil }); err != nil {
		log.Fatal(err)
	}
}

func consuming(ctx context.Context, charge func(context.Context, []byte) error) error {
	client, err := sarama.NewClient([]string{"localhost:9092"}, sarama.NewConfig())
	if err != nil {
		return err
	}
	defer client.Close()
	err = kafka.Consume(ctx, client, kafka.Config{Group: "billing"}, []string{"orders"},
		func(ctx context.Context, record *sarama.ConsumerMessage) error {
			return charge(ctx, record.Value) // an error: again after 1, 2 and 4 s plus jitter, then the DLQ
		})
	return err
}

func invoice(msg *message.Message) ([]*message.Message, error) {
	return []*message.Message{message.NewMessage("invoice-"+msg.UUID, msg.Payload)}, nil
}

// A service that runs its consumer group itself goes on doing so.
func ExampleWrap() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	client, err := sarama.NewClient([]string{"localhost:9092"}, config)
	if err != nil {
		log.Fatal(err)
	}
	group, err := sarama.NewConsumerGroupFromClient("billing", client)
	if err != nil {
		log.Fatal(err)
	}
	wrapped, err := kafka.Wrap(ctx, client, group, kafka.Config{Group: "billing"}, []string{"orders"},
		func(context.Context, *sarama.ConsumerMessage) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, wrapped.Topics(), wrapped); err != nil { // Topics may change
			log.Print(err)
		}
	}
	if err := wrapped.Close(context.WithoutCancel(ctx)); err != nil {
		log.Print(err)
	}
}

// Up to fifty records at once, each with an answer of its own.
func ExampleConsumeBatch() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	client, err := sarama.NewClient([]string{"localhost:9092"}, sarama.NewConfig())
	if err != nil {
		log.Fatal(err)
	}
	err = kafka.ConsumeBatch(ctx, client, kafka.Config{Group: "billing"}, []string{"orders"},
		kafka.BatchConfig{Size: 50, Timeout: time.Second}, func(_ context.Context, b *kafka.Batch) error {
			for _, record := range b.Messages {
				if len(record.Value) == 0 {
					record.Reject("an order has a value")
				}
			}
			return nil // the others are done
		})
	if err != nil {
		log.Print(err)
	}
}

// A plan says what a start would create, and creates nothing.
func ExampleClient_Plan() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	client, err := kafka.Open(ctx, kafka.Config{Brokers: []string{"localhost:9092"}, Group: "billing"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	plan, err := client.Plan(context.Background(), "orders")
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(plan)
}

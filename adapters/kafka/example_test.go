package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/middleware"
)

// A page of docs shows a part of it. A test compares them.
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
	order := message.NewMessage("4711", []byte(`{"euros":40}`)) // its UUID is its id in all attempts
	kafka.SetKey(order, []byte("customer-17"))                  // messages of one key run one after another
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

// The README shows a part of it. A test compares them.
func ExampleConsume() {
	brokers, end := kafkaWith("4711")
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	err := consuming(ctx, brokers, func(_ context.Context, order []byte) error {
		fmt.Printf("charged %s\n", order)
		stop()
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: charged 4711
}

func consuming(ctx context.Context, brokers []string, charge func(context.Context, []byte) error) error {
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest // sarama's default skips records from before the group existed
	client, err := sarama.NewClient(brokers, config)
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

// A service keeps running its own consumer group.
func ExampleWrap() {
	brokers, end := kafkaWith("4711")
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	client, err := sarama.NewClient(brokers, config)
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()
	group, err := sarama.NewConsumerGroupFromClient("billing", client)
	if err != nil {
		log.Panic(err)
	}
	wrapped, err := kafka.Wrap(ctx, client, group, kafka.Config{Group: "billing"}, []string{"orders"},
		func(_ context.Context, record *sarama.ConsumerMessage) error {
			fmt.Printf("charged %s\n", record.Value)
			stop()
			return nil
		})
	if err != nil {
		log.Panic(err)
	}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, wrapped.Topics(), wrapped); err != nil { // Topics may change
			log.Print(err)
		}
	}
	if err := errors.Join(wrapped.Close(context.WithoutCancel(ctx)), group.Close()); err != nil {
		log.Print(err)
	}
	// Output: charged 4711
}

// Up to three records at once, each with its own answer.
func ExampleConsumeBatch() {
	brokers, end := kafkaWith("4711", "4712", "")
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	client, err := sarama.NewClient(brokers, config)
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()
	err = kafka.ConsumeBatch(ctx, client, kafka.Config{Group: "billing"}, []string{"orders"},
		redeliver.BatchConfig{Size: 3, Timeout: time.Minute}, func(_ context.Context, b *kafka.Batch) error {
			defer stop()
			for _, record := range b.Messages {
				if len(record.Record.Value) == 0 {
					record.Reject("an order has a value")
				}
			}
			fmt.Println(len(b.Messages), "at once")
			return nil // the others are done
		})
	if err != nil {
		log.Print(err)
	}
	// Output: 3 at once
}

// A configuration that cannot work is refused with all of its problems.
func ExampleOpen_refused() {
	_, err := kafka.Open(context.Background(), kafka.Config{Policy: redeliver.Policy{MaxRetries: -5}})
	fmt.Println(err)
	// Output: kafka: configuration refused: Brokers is empty: it is required: host:port of at least one broker; Group is "": it is required: a retry comes back to the group that failed it; Policy.MaxRetries is -5: must be from 1 to 1000000, 0 for the default, or NoRetries
}

// A plan says what a start would create, and creates nothing.
func ExampleOpen_plan() { //nolint:testableexamples // it needs a broker
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

// Command portable is one service that runs on Kafka, RabbitMQ and SQS. BROKER chooses the broker; open is the only function that
// knows it.
//
//	BROKER=kafka://localhost:9092 go run ./examples/portable
//	BROKER=amqp://guest:guest@localhost:5672/ go run ./examples/portable
//	BROKER=http://localhost:9324 go run ./examples/portable # SQS, here an ElasticMQ
//
// It prints the plan, pauses and resumes the orders, sends some, charges them with retries, files receipts in batches, and replays
// a dead letter after its fault is fixed. Then it ends. Two arguments rename the topics orders and receipts, which are queues
// on RabbitMQ and SQS. On Kafka they must exist.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/mq"
)

// open connects to the broker of a URL.
func open(ctx context.Context, url string, policy redeliver.Policy, sink redeliver.Sink) (*mq.Client, error) {
	scheme, hosts, _ := strings.Cut(url, "://")
	switch scheme {
	case "kafka":
		return kafka.Open(ctx, kafka.Config{Brokers: strings.Split(hosts, ","), Group: "portable", Policy: policy, Sink: sink})
	case "amqp", "amqps":
		return amqp.Open(ctx, amqp.Config{URLs: []string{url}, Policy: policy, Sink: sink})
	case "http", "https": // the region and the keys come from the environment
		return sqs.Open(ctx, sqs.Config{Endpoint: url, Policy: policy, Sink: sink})
	default:
		return nil, fmt.Errorf("BROKER=%q: want a URL with kafka, amqp or http", redeliver.Redact(url))
	}
}

// service handles orders and receipts.
type service struct {
	client           *mq.Client
	orders, receipts string // topics

	fixed   atomic.Bool // the fault of order 3 is fixed
	results chan string
}

// charge handles an order. The policy decides what an error means.
func (s *service) charge(msg *message.Message) error {
	st, _ := redeliver.FromContext(msg.Context())
	order := string(msg.Payload)
	switch {
	case order == "order 2" && st.Attempt() == 1:
		return errors.New("the bank is busy") // again after a second
	case order == "order 3" && !s.fixed.Load():
		return redeliver.Permanent(errors.New("no such currency")) // to the DLQ
	}
	s.results <- fmt.Sprintf("%s is charged in attempt %d", order, st.Attempt())
	return nil
}

// file handles receipts in batches.
func (s *service) file(_ context.Context, b *middleware.MessageBatch) error {
	for _, m := range b.Messages {
		s.results <- fmt.Sprintf("%s is filed", m.Record.Payload)
	}
	return nil
}

// send sends messages.
func (s *service) send(topic string, payloads ...string) error {
	for _, p := range payloads {
		if err := s.client.Publisher().Publish(topic, message.NewMessage(p, []byte(p))); err != nil {
			return err
		}
	}
	return nil
}

// operate does what an operator does: it prints the plan, pauses and resumes orders, and replays their dead letters.
func (s *service) operate(ctx context.Context) error {
	ops := s.client.Operations()
	plan, err := s.client.Plan(ctx, s.orders)
	if err != nil {
		return err
	}
	fmt.Print(plan)
	if err := ops.Pause(ctx, s.orders, "the bank moves"); err != nil {
		return err
	}
	mark, err := ops.Paused(ctx, s.orders)
	if err != nil {
		return err
	}
	fmt.Println("paused:", mark.Reason)
	if err := ops.Resume(ctx, s.orders); err != nil {
		return err
	}
	if err := errors.Join(s.send(s.orders, "order 1", "order 2", "order 3"), s.send(s.receipts, "receipt 1", "receipt 2")); err != nil {
		return err
	}
	for range 5 {
		fmt.Println(<-s.results)
	}

	s.fixed.Store(true)
	dlq, err := ops.DeadLetters(ctx, mq.DeadLetterConfig{Topic: s.orders})
	if err != nil {
		return err
	}
	task, err := deadletter.Replay(ctx, dlq, deadletter.ReplayOptions{Who: "ann", Why: "the currency is known now"})
	if err = errors.Join(err, dlq.Close()); err != nil {
		return err
	}
	fmt.Println("replayed:", task.Counts.Replayed)
	fmt.Println(<-s.results)
	return nil
}

func run(orders, receipts string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := &service{orders: orders, receipts: receipts, results: make(chan string, 100)}
	sink := redeliver.SinkFunc(func(e redeliver.Event) {
		if dead, ok := e.(redeliver.DeadLettered); ok {
			s.results <- fmt.Sprintf("%s is dead: %s", dead.State.ID, dead.State.Error)
		}
	})
	policy := redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Steps(time.Second)}
	if s.client, err = open(ctx, os.Getenv("BROKER"), policy, sink); err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		return err
	}
	file, err := middleware.Batch(redeliver.BatchConfig{Size: 2, Timeout: time.Second}, s.file)
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("charge", s.orders, s.client.Subscriber(), s.charge)
	router.AddConsumerHandler("file", s.receipts, s.client.Subscriber(), file)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()
	return errors.Join(s.operate(ctx), router.Close(), <-ended, s.client.Close(ctx))
}

func main() {
	orders, receipts := "orders", "receipts"
	if len(os.Args) == 3 {
		orders, receipts = os.Args[1], os.Args[2]
	}
	if err := run(orders, receipts); err != nil {
		log.Fatal(err)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
)

// rabbitReaders is the number of the peer's handlers that read its queue, each with one message in flight.
const rabbitReaders = 10

// onRabbit is a broker that uses amqp091-go.
type onRabbit struct {
	url  string
	conn *amqp091.Connection

	mu       sync.Mutex
	channels map[string]*amqp091.Channel // that publish, by queue
}

func dialRabbitMQ(context.Context) (broker, error) {
	url := os.Getenv(brokers.EnvRabbitMQ)
	conn, err := amqp091.Dial(url)
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker of %s: %w", brokers.EnvRabbitMQ, err)
	}
	return &onRabbit{url: url, conn: conn, channels: make(map[string]*amqp091.Channel)}, nil
}

func (r *onRabbit) version() string {
	return fmt.Sprintf("%v %v", r.conn.Properties["product"], r.conn.Properties["version"])
}

var quorum = amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}

func (r *onRabbit) prepare(_ context.Context, queue string) error {
	ch, err := r.conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	for _, name := range []string{queue, poisonOf(queue)} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, quorum); err != nil {
			return fmt.Errorf("declaring %s: %w", name, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.channels[queue] = ch
	return nil
}

func (r *onRabbit) write(ctx context.Context, queue string, first, end int) error {
	r.mu.Lock()
	ch := r.channels[queue]
	r.mu.Unlock()
	var waiting []*amqp091.DeferredConfirmation
	for id := first; id < end; id++ {
		c, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp091.Publishing{
			Headers: amqp091.Table{uuidHeader: uuidOf(id)}, DeliveryMode: amqp091.Persistent, Body: body(id),
		})
		if err != nil {
			return err
		}
		waiting = append(waiting, c)
	}
	for _, c := range waiting {
		if ok, err := c.WaitContext(ctx); err != nil || !ok {
			return fmt.Errorf("not confirmed: %w", errors.Join(err, ctx.Err()))
		}
	}
	return nil
}

func (r *onRabbit) dead(ctx context.Context, queue string) (map[int]int, error) {
	ch, err := r.conn.Channel()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ch.Close() }()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", queue, err)
	}
	found := make(map[int]int)
	if q.Messages == 0 {
		return found, nil
	}
	if err := ch.Qos(500, 0, false); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	deliveries, err := ch.ConsumeWithContext(ctx, queue, "", true, false, false, false, nil)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", queue, err)
	}
	for range q.Messages {
		d, ok := <-deliveries
		if !ok {
			return nil, fmt.Errorf("reading %s: %w", queue, errors.Join(context.Cause(ctx), errors.New("the channel was closed")))
		}
		id := -1
		if uuid, ok := d.Headers[uuidHeader].(string); ok {
			if n, err := idOf(uuid); err == nil {
				id = n
			}
		}
		found[id]++
	}
	return found, nil
}

func (r *onRabbit) dlq(queue string) string { return queue + ".dlq" }

func (r *onRabbit) close() { _ = r.conn.Close() }

func (r *onRabbit) ours(_ string, p redeliver.Policy, sink redeliver.Sink) (setup, error) {
	client, err := amqp.Open(context.Background(), amqp.Config{URLs: []string{r.url}, Policy: p, Sink: sink})
	if err != nil {
		return setup{}, err
	}
	return setup{
		sub: client.Subscriber(), close: func() { _ = client.Close(context.Background()) },
		settings: fmt.Sprintf("defaults, prefetch %d", amqp.DefaultMaxInFlight),
	}, nil
}

// peer returns watermill-amqp's durable queue with three changes: it is a quorum queue, it has confirms, and several
// handlers read it.
func (r *onRabbit) peer(string) (setup, error) {
	cfg := wamqp.NewDurableQueueConfig(r.url)
	cfg.Queue.Arguments = quorum
	cfg.Publish.ConfirmDelivery = true
	sub, err := wamqp.NewSubscriber(cfg, watermill.NopLogger{})
	if err != nil {
		return setup{}, err
	}
	pub, err := wamqp.NewPublisher(cfg, watermill.NopLogger{})
	if err != nil {
		return setup{}, errors.Join(err, sub.Close())
	}
	return setup{
		sub: sub, pub: pub, readers: rabbitReaders,
		settings: fmt.Sprintf("watermill-amqp's NewDurableQueueConfig, quorum queues, ConfirmDelivery; %d handlers read the queue, each with one message in flight", rabbitReaders),
		close: func() {
			_ = sub.Close()
			_ = pub.Close()
		},
	}, nil
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/txix-open/grmq"
	grmqconsumer "github.com/txix-open/grmq/consumer"
	"github.com/txix-open/grmq/retry"
	"github.com/txix-open/grmq/topology"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
)

func (s spec) openRabbit(ctx context.Context, sink redeliver.Sink) (*consumer, error) {
	switch {
	case s.Side != peer:
		return s.openAMQP(ctx, sink)
	case s.Failing.Every > 0:
		return s.openGRMQ(), nil
	default:
		return s.openWatermillAMQP()
	}
}

// openAMQP opens our side: the defaults, except for what a row tests.
func (s spec) openAMQP(ctx context.Context, sink redeliver.Sink) (*consumer, error) {
	client, err := amqp.Open(ctx, amqp.Config{
		URLs: s.Brokers, Policy: s.policy(), MaxInFlight: s.InFlight, Sink: sink,
	})
	if err != nil {
		return nil, err
	}
	return s.ours(client.Subscriber(), client.Close, fmt.Sprintf("defaults, MaxInFlight (and so prefetch) %d", s.InFlight)), nil
}

// openWatermillAMQP uses watermill-amqp's durable queue as a quorum queue, with a prefetch count: its own is 1.
// Confirms are an option of its publisher, which has nothing to do here.
func (s spec) openWatermillAMQP() (*consumer, error) {
	cfg := wamqp.NewDurableQueueConfig(s.Brokers[0])
	cfg.Queue.Arguments = amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}
	cfg.Consume.Qos.PrefetchCount = s.InFlight
	cfg.Publish.ConfirmDelivery = true
	sub, err := wamqp.NewSubscriber(cfg, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	return &consumer{
		sub: sub, settings: fmt.Sprintf("watermill-amqp's NewDurableQueueConfig, quorum queue, prefetch %d, ConfirmDelivery", s.InFlight),
		provision: func() error { return sub.SubscribeInitialize(s.Topic) },
		close:     func() { _ = sub.Close() },
	}, nil
}

// The names that grmq gives its queues and the header with its number of retries.
func grmqRetryQueue(queue string) string {
	return retry.WithDelay(time.Second, retries).QueueName(queue)
}
func grmqDLQ(queue string) string { return queue + "." + topology.DLQSuffix }

const grmqRetryCount = "grmq-retry-count"

// openGRMQ sets up grmq as documented, with as many workers as unacked messages, and with the topology that
// it would build, but of quorum queues: it has no option for its own queues.
func (s spec) openGRMQ() *consumer {
	policy := retry.NewPolicy(true, retry.WithDelay(time.Second, retries))
	quorum := topology.WithQueueArg(amqp091.QueueTypeArg, amqp091.QueueTypeQuorum)
	deadLetter := func(key string) topology.QueueOption {
		return func(q *topology.Queue) {
			q.Args["x-dead-letter-exchange"], q.Args["x-dead-letter-routing-key"] = topology.DLXName, key
		}
	}
	again := grmqRetryQueue(s.Topic)
	declarations := grmq.WithTopologyBuilding(
		topology.WithDirectExchange(topology.DLXName),
		topology.WithQueue(s.Topic, quorum, deadLetter(s.Topic)),
		topology.WithQueue(grmqDLQ(s.Topic), quorum),
		topology.WithQueue(again, quorum, deadLetter(again), topology.WithQueueArg(amqp091.QueueMessageTTLArg, time.Second.Milliseconds())),
		topology.WithBinding(topology.DLXName, grmqDLQ(s.Topic), s.Topic),
		topology.WithBinding(topology.DLXName, s.Topic, again),
	)
	var client *grmq.Client
	run := func(options ...grmq.ClientOption) error {
		client = grmq.New(s.Brokers[0], append(options, declarations)...)
		return client.Run(context.Background())
	}
	return &consumer{
		settings:  fmt.Sprintf("grmq's defaults, all queues quorum, prefetch and concurrency %d, %d retries of %s", s.InFlight, retries, s.Backoff),
		provision: func() error { return run() },
		begin: func(h *handling, failed func(error)) error {
			return run(grmq.WithConsumers(grmqconsumer.New(
				grmqconsumer.HandlerFunc(func(_ context.Context, d *grmqconsumer.Delivery) { h.handleGRMQ(d, failed) }), s.Topic,
				grmqconsumer.WithPrefetchCount(s.InFlight), grmqconsumer.WithConcurrency(s.InFlight), grmqconsumer.WithRetryPolicy(policy),
			)))
		},
		close: func() {
			if client != nil {
				client.Shutdown()
			}
		},
	}
}

// handleGRMQ fails a message. The last time, grmq nacks it and the broker moves it to the DLQ; nothing shows when it is
// there, so the message counts as settled here.
func (h *handling) handleGRMQ(d *grmqconsumer.Delivery, failed func(error)) {
	h.meter.enter(d.Source().Body)
	tries, _ := d.Source().Headers[grmqRetryCount].(int64)
	if err := d.Retry(); err != nil {
		failed(err)
		return
	}
	if tries >= retries {
		h.meter.settle()
	}
}

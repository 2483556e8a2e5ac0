package main

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
)

// openRabbitMQ reads the queue with the topic's name. The adapter declares the queue if it does not exist.
func openRabbitMQ(ctx context.Context, o options, sink redeliver.Sink) (*broker, error) {
	c, err := amqp.Open(ctx, amqp.Config{
		URLs: o.broker.AMQP(), Policy: o.policy,
		MaxInFlight: o.maxInFlight, DrainTimeout: drainTimeout,
		Sink: sink,
	})
	if err != nil {
		return nil, err
	}
	noKey := func(*message.Message) []byte { return nil }
	plan := func(ctx context.Context, topic string) (fmt.Stringer, error) { return c.Plan(ctx, topic) }
	return &broker{subscriber: c.Subscriber(), plan: plan, key: noKey, close: c.Close}, nil
}

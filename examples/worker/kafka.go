package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

func openKafka(ctx context.Context, o options, sink redeliver.Sink) (*broker, error) {
	client := o.broker.Sarama()
	client.ClientID = "redeliver-worker"
	client.Consumer.Group.Session.Timeout = 10 * time.Second
	c, err := kafka.Open(ctx, kafka.Config{
		Brokers: o.broker.Hosts, Group: o.group, Policy: o.policy,
		MaxInFlight: o.maxInFlight, InstanceID: o.instanceID, DrainTimeout: drainTimeout,
		Sink: sink, Sarama: client,
	})
	if err != nil {
		return nil, err
	}
	key := func(msg *message.Message) []byte {
		if record := kafka.RecordFromContext(msg.Context()); record != nil {
			return record.Key
		}
		return nil
	}
	plan := func(ctx context.Context, topic string) (fmt.Stringer, error) { return c.Plan(ctx, topic) }
	return &broker{subscriber: c.Subscriber(), plan: plan, key: key, close: c.Close}, nil
}

package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// broker is all that this program needs of one.
type broker struct {
	subscriber message.Subscriber
	key        func(*message.Message) []byte
	close      func(context.Context) error
}

// connect opens the broker that the options name. There is only Kafka today.
func connect(ctx context.Context, o options, sink redeliver.Sink) (*broker, error) {
	client := o.broker.Sarama()
	client.ClientID = "redeliver-worker"
	client.Consumer.Group.Session.Timeout = 10 * time.Second
	c, err := kafka.Open(ctx, kafka.Config{
		Brokers: o.broker.Hosts, Group: o.group, Policy: o.policy,
		MaxInFlight: o.maxInFlight, InstanceID: o.instanceID, DrainTimeout: drainTimeout,
		Sink: sink, Sarama: client,
	})
	if errors.Is(err, redeliver.ErrConfig) {
		return nil, usageError{err} // all of it came from the command line
	}
	if err != nil {
		return nil, err
	}
	s := c.Subscriber()
	if o.createTopic {
		if err := s.SubscribeInitialize(o.topic); err != nil {
			return nil, errors.Join(err, c.Close(ctx))
		}
	}
	return &broker{subscriber: s, key: key, close: c.Close}, nil
}

func key(msg *message.Message) []byte {
	if record := kafka.RecordFromContext(msg.Context()); record != nil {
		return record.Key
	}
	return nil
}

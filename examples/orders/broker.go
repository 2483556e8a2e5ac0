package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// sender has the functions of a broker that this program needs.
type sender struct {
	message.Publisher

	close func(context.Context) error
}

// connect opens the broker that the options name, and creates the topic or queue if it does not exist.
func connect(ctx context.Context, o options) (*sender, error) {
	switch o.broker.Broker {
	case brokerurl.RabbitMQ:
		c, err := amqp.Open(ctx, amqp.Config{URLs: o.broker.AMQP()})
		if err != nil {
			return nil, err
		}
		return &sender{c.Publisher(), c.Close}, c.Subscriber().SubscribeInitialize(o.topic)
	case brokerurl.SQS:
		cfg, err := o.broker.AWS(ctx)
		if err != nil {
			return nil, err
		}
		c, err := sqs.Open(ctx, sqs.Config{AWS: cfg, Endpoint: o.broker.Endpoint()})
		if err != nil {
			return nil, err
		}
		return &sender{c.Publisher(), c.Close}, c.Subscriber().SubscribeInitialize(o.topic)
	default:
		if err := createTopic(o); err != nil {
			return nil, err
		}
		c, err := kafka.Open(ctx, kafka.Config{Brokers: o.broker.Hosts, Sarama: o.broker.Sarama(), Group: "orders"})
		if err != nil {
			return nil, err
		}
		return &sender{c.Publisher(), c.Close}, nil
	}
}

// createTopic creates a topic with the broker's default numbers of partitions and replicas. Consumers create the topics
// of their groups.
func createTopic(o options) error {
	admin, err := sarama.NewClusterAdmin(o.broker.Hosts, o.broker.Sarama())
	if err != nil {
		return fmt.Errorf("connecting to kafka: %w", err)
	}
	err = admin.CreateTopic(o.topic, &sarama.TopicDetail{NumPartitions: -1, ReplicationFactor: -1}, false)
	if errors.Is(err, sarama.ErrTopicAlreadyExists) {
		err = nil
	}
	if err = errors.Join(err, admin.Close()); err != nil {
		return fmt.Errorf("creating topic %s: %w", o.topic, err)
	}
	return nil
}

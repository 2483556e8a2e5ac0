package main

import (
	"context"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
)

// openSQS reads the queue of the topic's name, which the adapter creates where it
// does not exist.
func openSQS(ctx context.Context, o options, sink redeliver.Sink) (*broker, error) {
	cfg, err := o.broker.AWS(ctx)
	if err != nil {
		return nil, err
	}
	c, err := sqs.Open(ctx, sqs.Config{
		AWS: cfg, Endpoint: o.broker.Endpoint(), Policy: o.policy,
		MaxInFlight: o.maxInFlight, DrainTimeout: drainTimeout,
		Sink: sink,
	})
	if err != nil {
		return nil, err
	}
	group := func(msg *message.Message) []byte {
		m := sqs.MessageFromContext(msg.Context())
		if m == nil || !strings.HasSuffix(o.topic, ".fifo") {
			return nil
		}
		return []byte(m.Attributes["MessageGroupId"])
	}
	return &broker{subscriber: c.Subscriber(), key: group, close: c.Close}, nil
}

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
)

// waitTime is how long a receive waits, and so how long an idle worker takes to end.
const waitTime = 2 * time.Second

// openSQS reads the queue with the topic's name. The adapter creates the queue if it does not exist.
func openSQS(ctx context.Context, o options, sink redeliver.Sink) (*broker, error) {
	cfg, err := o.broker.AWS(ctx)
	if err != nil {
		return nil, err
	}
	c, err := sqs.Open(ctx, sqs.Config{
		AWS: cfg, Endpoint: o.broker.Endpoint(), Policy: o.policy,
		MaxInFlight: o.maxInFlight, DrainTimeout: drainTimeout,
		WaitTime: waitTime,
		Sink:     sink,
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
	plan := func(ctx context.Context, topic string) (fmt.Stringer, error) { return c.Plan(ctx, topic) }
	return &broker{subscriber: c.Subscriber(), plan: plan, key: group, close: c.Close}, nil
}

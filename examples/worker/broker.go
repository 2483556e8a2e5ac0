package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// broker has the functions of a broker that this program needs.
type broker struct {
	subscriber subscriber
	plan       func(context.Context, string) (fmt.Stringer, error)
	key        func(*message.Message) []byte // returns nil for a message without a key
	close      func(context.Context) error
}

type subscriber interface {
	message.Subscriber
	message.SubscribeInitializer
}

// connect opens the broker that the options name.
func connect(ctx context.Context, o options, sink redeliver.Sink) (b *broker, err error) {
	switch o.broker.Broker {
	case brokerurl.RabbitMQ:
		b, err = openRabbitMQ(ctx, o, sink)
	case brokerurl.SQS:
		b, err = openSQS(ctx, o, sink)
	default:
		b, err = openKafka(ctx, o, sink)
	}
	if errors.Is(err, redeliver.ErrConfig) {
		err = usageError{err} // all settings came from the command line
	}
	return b, err
}

package middleware

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

// PublishInside publishes what the handler produced to topic within the
// attempt, so that a publish that fails is an attempt that failed: counted,
// retried as the policy says, dead-lettered with its error. A Router publishes
// only after all its middlewares, where a failure is a bare Nack; Retry's
// subscribers count that too, but know nothing of its cause.
//
// It stands inside Retry. The handler is added as one that produces nothing
// (AddConsumerHandler takes none; use AddHandler with a publisher and topic that
// never get a message, or call the returned middleware by hand). The publisher
// is called once for all messages of an attempt; what it published before it
// failed is published again by the next attempt. What a handler produced after
// its attempt was over is dropped.
func PublishInside(pub message.Publisher, topic string) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context() // what stands inside may leave one that it has ended
			produced, err := h(msg)
			if err != nil || len(produced) == 0 {
				return nil, err
			}
			if ctx.Err() != nil {
				return nil, fmt.Errorf("%d produced messages are not published, the attempt is over: %w", len(produced), context.Cause(ctx))
			}
			if err := pub.Publish(topic, produced...); err != nil {
				return nil, fmt.Errorf("publishing %d produced messages to %s: %w", len(produced), topic, err)
			}
			return nil, nil
		}
	}
}

package middleware

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

// PublishInside returns a middleware that publishes the messages that the handler produced to topic, within the attempt. So a failed
// publish is a failed attempt: it is counted, retried by the policy, and dead-lettered with its error. A Router, on the other hand,
// publishes only after all its middlewares. When that fails it nacks the message, and subscribers do not get the error.
//
// Put it inside Retry. The Router must not publish the messages. But AddConsumerHandler takes no handler that produces messages,
// so use AddHandler with a publisher and a topic that never get a message, or call the returned middleware directly.
// The publisher is called once for all messages of an attempt. Messages that it published before it failed are
// published again by the next attempt. Messages that a handler produced after the end of its attempt are dropped.
func PublishInside(pub message.Publisher, topic string) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context() // an inner middleware may leave a context that it has ended
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

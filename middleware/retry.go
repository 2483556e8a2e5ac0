package middleware

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
)

// ErrNoSubscription is the error of Retry for a message that no subscriber of redeliver delivered. Such a message has
// no policy, so the Router nacks it and its own subscriber decides.
var ErrNoSubscription = errors.New("retry: the message comes from no redeliver subscriber; use one from adapters/..., or remove middleware.Retry from this handler")

// Retry returns the middleware that applies a subscription's policy to the failures of a handler. One Retry serves all handlers, brokers
// and policies of a Router: it finds the subscription in the message's context.
//
// For every message, Retry
//   - calls Policy.Invalid before each attempt, and dead-letters the messages that it refuses;
//   - runs the handler with a context that ends with the policy's Timeout;
//   - after a success returns the messages that the handler produced;
//   - after an error, a panic or a timeout drops the produced messages, and passes the failure to the subscriber. The subscriber
//     calls Policy.Decide, and writes the message to a level or to the DLQ. Retry returns nil, and the Router acks the message. The
//     subscriber acks it on the broker only when the broker has confirmed the write. While the broker refuses the write, only the
//     write is tried again.
//
// When a handler exceeds its Timeout, its attempt has failed, its message is settled, and its later answer is ignored. A handler that
// still runs a second later is stuck: it is counted (HandlerStuck) until it returns (LateAnswer).
//
// When a handler acks or nacks its message itself, its return value and its Timeout do not count.
//
// A Retry within another one only calls its handler: the outer one runs the attempt.
//
// When the session or the process ends during an attempt, the attempt is not counted: Retry returns an error, nothing is acked, and
// the message comes back.
func Retry() message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { return handle(h, msg) }
	}
}

func handle(h message.HandlerFunc, msg *message.Message) ([]*message.Message, error) {
	d := engine.FromContext(msg.Context())
	if d == nil {
		return nil, ErrNoSubscription
	}
	if d.Begun() { // within another Retry, which runs the attempt
		return h(msg)
	}
	return binding.Run(d, h, msg)
}

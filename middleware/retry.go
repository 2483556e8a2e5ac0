package middleware

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/internal/engine"
)

// ErrNoSubscription is what Retry answers for a message that no subscriber of
// redeliver delivered: it knows neither a policy nor a place to wait, so the
// message is nacked and its own subscriber decides.
var ErrNoSubscription = errors.New("retry: the message comes from no redeliver subscriber; use one from adapters/..., or take middleware.Retry off this handler")

// Retry returns the middleware that does what a subscription's policy says
// about the failures of a handler. One Retry serves all handlers, brokers and
// policies of a Router: it finds the subscription in the message's context.
//
// For every message it
//   - asks Policy.Invalid before each attempt, and dead-letters what must no longer run;
//   - runs the handler with a context that ends with the policy's Timeout;
//   - on success returns what the handler produced: nothing else is done;
//   - on an error, a panic or a time-out drops what was produced, asks
//     Policy.Decide, and has the message written to where it waits or to the DLQ.
//     It returns nil, and the Router is done with the message. The subscriber
//     acks it on the broker only when the broker has confirmed the write. While
//     the broker refuses, only the write is tried again.
//
// A handler that outlives its Timeout has failed at that moment, and its
// message moves on, whatever the handler answers later. One that is still
// running a second after its message has moved on is stuck: it is counted
// (HandlerStuck) until it returns (LateAnswer).
//
// A handler that acks or nacks its message itself has answered by that: what it
// returns, and its Timeout, change nothing any more.
//
// A Retry within another one only calls its handler: the outer one runs the attempt.
//
// An attempt that ends because the session or the process ends is not counted:
// Retry returns an error, nothing is acked, and the message comes back.
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
	return run(d, h, msg)
}

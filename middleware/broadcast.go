package middleware

import (
	"errors"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// ErrBroadcast is what Retry and Receive answer for a message of a broadcast
// consumer: there is no group to which it could come back.
var ErrBroadcast = errors.New("the message comes from a broadcast consumer, which reports failures and does not retry them; take middleware.Retry off its handler, or give it middleware.AllowBroadcast for the policy's Immediate tries in this process")

// broadcast tells the subscriber, which runs the attempt, how a handler has failed.
func broadcast(h message.HandlerFunc, msg *message.Message, allowed bool) (produced []*message.Message, err error) {
	ctx := msg.Context()
	if !allowed {
		delayqueue.Explain(ctx, ErrBroadcast)
		return nil, ErrBroadcast
	}
	defer func() {
		if v := recover(); v != nil {
			produced, err = nil, &redeliver.PanicError{Value: v, Stack: debug.Stack()}
		}
		if err != nil {
			delayqueue.Explain(ctx, err)
		}
	}()
	return h(msg)
}

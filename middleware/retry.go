package middleware

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
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
//     Policy.Decide, and writes the message to where it waits or to the DLQ. It
//     returns nil, for the Router to ack, only when the broker has confirmed
//     that. While the broker refuses, only the write is tried again.
//
// A handler that outlives its Timeout has failed at that moment, and its
// message moves on, whatever the handler answers later. One that is still
// running a second after its message has moved on is stuck: it is counted
// (HandlerStuck) until it returns (LateAnswer).
//
// A handler that acks or nacks its message itself has answered by that: what it
// returns, and its Timeout, change nothing any more.
//
// An attempt that ends because the session or the process ends is not counted:
// Retry returns an error, nothing is acked, and the message comes back.
func Retry() message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { return handle(h, msg) }
	}
}

func handle(h message.HandlerFunc, msg *message.Message) ([]*message.Message, error) {
	outer := msg.Context()
	d := delayqueue.FromContext(outer)
	if d == nil {
		return nil, ErrNoSubscription
	}
	if d.Lost() { // it lay ready when its session ended, and comes back
		return nil, delayqueue.ErrAbandoned
	}
	run, w := msg, watchOf(d.Sub)
	for ctx := outer; ; {
		if d.Sub.Policy.Invalid != nil {
			if err := invalid(d, run); err != nil {
				_, err = failed(d, err)
				return nil, err
			}
		}
		a := &attempt{d: d, msg: msg, run: run}
		produced, err := a.do(ctx, h, w)
		if a.over != nil {
			return nil, a.over.verdict // it was settled without the handler
		}
		msg.SetContext(outer)
		if err == nil {
			if run != msg {
				a.answered()
			}
			return produced, nil
		}
		if a.answered() {
			return nil, err // the Router's nack does nothing any more
		}
		next, err := failed(d, err)
		if next == nil {
			return nil, err
		}
		// Once more, in place: with a fresh message, because the handler may
		// have changed this one, under a delivery that knows of the attempt.
		d = next
		ctx = d.Under(outer)
		if run, err = d.Record.Message(); err != nil {
			_, err = failed(d, &redeliver.UndecodableError{Err: err})
			return nil, err
		}
	}
}

// failed does what the policy says of a failure. It returns the delivery to run
// again at once, or nil and what the Router is to be told. It stands apart, with
// what it calls, because the frame of handle is on the stack of every message.
//
//go:noinline
func failed(d *delayqueue.Delivery, err error) (again *delayqueue.Delivery, _ error) {
	if d.Lost() {
		d.Sub.Tell(redeliver.Abandoned{State: d.State(), Err: err})
		return nil, fmt.Errorf("%w: %w", delayqueue.ErrAbandoned, err)
	}
	dec := d.Sub.Decide(d.State(), err, time.Now())
	if dec.Action == redeliver.RetryNow {
		return d.After(dec.State), nil
	}
	return nil, d.Sub.Forward(d, dec, err)
}

// invalid asks Policy.Invalid; a panic of it is an answer too.
func invalid(d *delayqueue.Delivery, msg *message.Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &redeliver.InvalidError{Err: &redeliver.PanicError{Value: v, Stack: debug.Stack()}}
		}
	}()
	m := redeliver.Message{Headers: msg.Metadata, Body: msg.Payload}
	d.ReadState(&m.State)
	if err := d.Sub.Policy.Invalid(m); err != nil {
		return &redeliver.InvalidError{Err: err}
	}
	return nil
}

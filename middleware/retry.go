package middleware

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
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
//   - asks Policy.Invalid, and dead-letters what must no longer run;
//   - runs the handler with a context that ends with the policy's Timeout;
//   - on success returns what the handler produced: nothing else is done;
//   - on an error, a panic or a time-out drops what was produced, asks
//     Policy.Decide, and writes the message to where it waits or to the DLQ. It
//     returns nil, for the Router to ack, only when the broker has confirmed
//     that. While the broker refuses, only the write is tried again.
//
// A handler that outlives its Timeout has failed at that moment, and its
// message moves on, whatever the handler answers later. One that is still
// running when its message has moved on is stuck: it is counted (HandlerStuck)
// until it returns (LateAnswer).
//
// An attempt that ends because the session or the process ends is not counted:
// Retry returns an error, nothing is acked, and the message comes back.
func Retry() message.HandlerMiddleware {
	r := &retry{}
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { return r.handle(h, msg) }
	}
}

type retry struct {
	watches sync.Map // time.Duration -> *watch
	stuck   atomic.Int64
}

func (r *retry) handle(h message.HandlerFunc, msg *message.Message) ([]*message.Message, error) {
	outer := msg.Context()
	d := delayqueue.FromContext(outer)
	if d == nil {
		return nil, ErrNoSubscription
	}
	state := d.State
	if d.Sub.Policy.Invalid != nil {
		if err := invalid(d, msg); err != nil {
			return nil, d.Sub.Forward(d, d.Sub.Decide(state(), err, time.Now()), err)
		}
	}
	run, ctx := msg, outer
	for {
		a := &attempt{retry: r, d: d, msg: msg, run: run, handler: h}
		produced, err := a.do(ctx)
		if a.expired() {
			return nil, a.verdict // the watch has settled the message
		}
		msg.SetContext(outer)
		if err == nil {
			return produced, nil
		}
		if d.Lost() {
			d.Sub.Tell(redeliver.Abandoned{State: state(), Err: err})
			return nil, fmt.Errorf("%w: %w", delayqueue.ErrAbandoned, err)
		}
		dec := d.Sub.Decide(state(), err, time.Now())
		if dec.Action != redeliver.RetryNow {
			return nil, d.Sub.Forward(d, dec, err)
		}
		// Once more, in place: with a fresh message, because the handler may
		// have changed this one, under a delivery that knows of the attempt.
		d = d.After(dec.State)
		state = d.State
		ctx = d.Under(outer)
		run = d.Record.Message()
	}
}

// invalid asks Policy.Invalid; a panic of it is an answer too.
func invalid(d *delayqueue.Delivery, msg *message.Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &redeliver.InvalidError{Err: &redeliver.PanicError{Value: v, Stack: debug.Stack()}}
		}
	}()
	if err := d.Sub.Policy.Invalid(redeliver.Message{State: d.State(), Headers: msg.Metadata, Body: msg.Payload}); err != nil {
		return &redeliver.InvalidError{Err: err}
	}
	return nil
}

// watch returns the watch for attempts of one timeout.
func (r *retry) watch(timeout time.Duration) *watch {
	if w, ok := r.watches.Load(timeout); ok {
		return w.(*watch)
	}
	w, _ := r.watches.LoadOrStore(timeout, newWatch(timeout))
	return w.(*watch)
}

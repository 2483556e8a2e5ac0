package pubsub

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// callGuarded calls do, which uses the user's Pub/Sub, and then end with its result. A panic in do must not end the
// process, and runtime.Goexit must not leave a caller waiting.
func callGuarded[T any](what string, do func() (T, error), end func(T, error)) {
	var v T
	err := fmt.Errorf("%s called runtime.Goexit", what)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %w", what, &redeliver.PanicError{Value: p, Stack: debug.Stack()})
		}
		end(v, err)
	}()
	v, err = do()
}

// within calls do, which may take any time and ignore ctx because it uses the user's Pub/Sub, and waits until it returns or ctx
// ends. It passes a later result to late. what names the call in errors.
func within[T any](ctx context.Context, what string, do func() (T, error), late func(T)) (none T, err error) {
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go callGuarded(what, do, func(v T, err error) { done <- result{v, err} })
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	go func() {
		if r := <-done; r.err == nil {
			late(r.v)
		}
	}()
	return none, context.Cause(ctx)
}

// subscribe calls Subscribe, and waits for it at most until ctx ends. The subscription's context has only the values of
// the context values. Only cancel ends the subscription.
func subscribe(ctx, values context.Context, sub message.Subscriber, topic string) (in <-chan *message.Message, cancel context.CancelFunc, err error) {
	reading, cancel := context.WithCancel(context.WithoutCancel(values))
	in, err = within(ctx, "Subscribe", func() (<-chan *message.Message, error) { return sub.Subscribe(reading, topic) }, nackAll)
	if err == nil && in == nil {
		err = errors.New("the subscriber has returned no channel")
	}
	if err != nil {
		cancel()
		return nil, nil, fmt.Errorf("pubsub: subscribing to %s: %w", topic, err)
	}
	return in, cancel, nil
}

// nackAll nacks the remaining messages of a Subscribe that has ended.
func nackAll(in <-chan *message.Message) {
	if in == nil {
		return
	}
	for raw := range in {
		raw.Nack()
	}
}

// publishWithin publishes a message. It waits at most until ctx ends. After an error the message may still be written.
func publishWithin(ctx context.Context, pub message.Publisher, topic string, msg *message.Message) error {
	msg.SetContext(ctx)
	_, err := within(ctx, "Publish", func() (struct{}, error) { return struct{}{}, pub.Publish(topic, msg) }, func(struct{}) {})
	if err != nil {
		err = fmt.Errorf("publishing to %s: %w", topic, err)
	}
	return err
}

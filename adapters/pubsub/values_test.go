package pubsub

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

type (
	ofSubscribe struct{}
	ofMessage   struct{}
)

// valueSubscriber adds a value to the contexts of its messages, as those of Kafka and RabbitMQ do.
type valueSubscriber struct{ message.Subscriber }

func (s valueSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for msg := range in {
			msg.SetContext(context.WithValue(msg.Context(), ofMessage{}, "partition 3"))
			select {
			case out <- msg:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// contextSubscriber subscribes with a context that has a value.
type contextSubscriber struct{ message.Subscriber }

func (s contextSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return s.Subscriber.Subscribe(context.WithValue(ctx, ofSubscribe{}, "a tracer"), topic)
}

// A handler's context has the values of Subscribe's context and, for a single message, those of the message's
// context.
func TestHandlersGetTheValuesOfContexts(t *testing.T) {
	check := func(t *testing.T, ctx context.Context, message any) {
		t.Helper()
		if s, m := ctx.Value(ofSubscribe{}), ctx.Value(ofMessage{}); s != "a tracer" || m != message {
			t.Errorf("the context has %v and %v, want a tracer and %v", s, m, message)
		}
	}
	for name, around := range map[string]func(t *testing.T, done func()) message.NoPublishHandlerFunc{
		"single": func(t *testing.T, done func()) message.NoPublishHandlerFunc {
			t.Helper()
			return func(msg *message.Message) error {
				check(t, msg.Context(), "partition 3")
				done()
				return nil
			}
		},
		"batch": func(t *testing.T, done func()) message.NoPublishHandlerFunc {
			t.Helper()
			h, err := middleware.Batch(redeliver.BatchConfig{Size: 1}, func(ctx context.Context, b *middleware.MessageBatch) error {
				check(t, ctx, nil)
				check(t, b.Messages[0].Context(), "partition 3")
				done()
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return h
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemoryBroker().member(t, "billing")
				c, err := Open(t.Context(), checkConfig(m, valueSubscriber{m}))
				if err != nil {
					t.Fatal(err)
				}
				ran := 0
				route(t, contextSubscriber{c.Subscriber()}, around(t, func() { ran++ }))
				if err := m.Publish("orders", message.NewMessage("a", nil)); err != nil {
					t.Fatal(err)
				}
				advance(time.Minute)
				synctest.Wait()
				if ran != 1 {
					t.Errorf("it ran %d times", ran)
				}
			})
		})
	}
}

// route runs a handler over a subscriber until the test ends.
func route(t *testing.T, sub message.Subscriber, h message.NoPublishHandlerFunc) {
	t.Helper()
	out, err := sub.Subscribe(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for msg := range out {
			if h(msg) == nil {
				msg.Ack()
			} else {
				msg.Nack()
			}
		}
	}()
	t.Cleanup(func() {
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

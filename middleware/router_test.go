package middleware_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// outbox is a publisher that keeps messages or refuses them.
type outbox struct {
	published []*message.Message
	refuse    error
}

func (o *outbox) Publish(_ string, msgs ...*message.Message) error {
	if o.refuse == nil {
		o.published = append(o.published, msgs...)
	}
	return o.refuse
}

func (o *outbox) Close() error { return nil }

// route runs a Router with the handler charge, from orders to invoices, and returns the subscription of orders.
func route(t *testing.T, b *redelivertest.Broker, p redeliver.Policy, out message.Publisher, h message.HandlerFunc, ms ...message.HandlerMiddleware) *redelivertest.Subscription {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	c := b.Open(redelivertest.Config{Group: "billing", Policy: p})
	router.AddMiddleware(ms...)
	router.AddHandler("charge", "orders", c.Subscriber(), "invoices", out, h)
	b.Start(router)
	b.Publish("orders", published("1"))
	return c.Subscription("orders")
}

func invoice(msg *message.Message) ([]*message.Message, error) {
	out := message.NewMessage("2", []byte("invoice"))
	out.SetContext(msg.Context())
	return []*message.Message{out}, nil
}

func TestRouterRetriesThroughTheSubscriber(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var out outbox
		var attempts []int
		var order []string
		around := func(name string) message.HandlerMiddleware {
			return func(h message.HandlerFunc) message.HandlerFunc {
				return func(msg *message.Message) ([]*message.Message, error) {
					order = append(order, name)
					produced, err := h(msg)
					if err != nil {
						order = append(order, name+" sees "+err.Error())
					}
					return produced, err
				}
			}
		}
		orders := route(t, b, redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(minute)}, &out, func(msg *message.Message) ([]*message.Message, error) {
			st, _ := redeliver.FromContext(msg.Context())
			attempts = append(attempts, st.Attempt())
			if message.HandlerNameFromCtx(msg.Context()) != "charge" {
				t.Error("the Router's values are missing in the handler's context")
			}
			if st.Attempt() < 3 {
				return nil, errHandler
			}
			return invoice(msg)
		}, around("outer"), middleware.Retry(), around("inner"))
		once := []string{"Attempted", "RetryScheduled"}
		if got, want := kinds(orders.Events()), slices.Concat(once, once, []string{"Attempted", "Committed"}); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if !slices.Equal(attempts, []int{1, 2, 3}) || len(out.published) != 1 {
			t.Errorf("attempts %v, %d published", attempts, len(out.published))
		}
		fails := []string{"outer", "inner", "inner sees " + errHandler.Error()} // and the outer middleware does not get the error
		if want := slices.Concat(fails, fails, []string{"outer", "inner"}); !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
	})
}

// When a publisher always fails, the attempts are counted, and the message goes to the DLQ, with the publisher's error
// if PublishInside got it.
func TestPublisherThatAlwaysFails(t *testing.T) {
	for _, inside := range []bool{true, false} {
		redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
			out := &outbox{refuse: errBroker}
			runs := 0
			chain, text := []message.HandlerMiddleware{middleware.Retry()}, redeliver.ErrNacked.Error()
			if inside {
				chain = append(chain, middleware.PublishInside(out, "invoices"))
				text = "publishing 1 produced messages to invoices: the broker is down"
			}
			orders := route(t, b, redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(minute)}, out,
				func(msg *message.Message) ([]*message.Message, error) { runs++; return invoice(msg) }, chain...)
			got := orders.Outcome("1")
			if st := got.State; runs != 4 || len(got.Waits) != 3 || st.Reason != redeliver.ReasonExhausted || st.Attempts != 4 || st.Error != text {
				t.Errorf("inside %v: ran %d times, %s: %+v", inside, runs, got, st)
			}
		})
	}
}

func TestPublishInsidePublishesAfterASuccess(t *testing.T) {
	var out outbox
	h := middleware.PublishInside(&out, "invoices")
	msg := published("1")
	if produced, err := h(invoice)(msg); produced != nil || err != nil || len(out.published) != 1 || string(out.published[0].Payload) != "invoice" {
		t.Errorf("%v, %v, published %+v", produced, err, out.published)
	}
	failing := func(msg *message.Message) ([]*message.Message, error) {
		produced, _ := invoice(msg)
		return produced, errHandler
	}
	if produced, err := h(failing)(msg); produced != nil || !errors.Is(err, errHandler) || len(out.published) != 1 {
		t.Errorf("a failed handler: %v, %v, published %+v", produced, err, out.published)
	}
	// Watermill's Timeout leaves a context in the message that it has ended, although the attempt has not.
	ended := func(msg *message.Message) ([]*message.Message, error) {
		ctx, cancel := context.WithCancel(msg.Context())
		defer cancel()
		msg.SetContext(ctx)
		return invoice(msg)
	}
	if _, err := h(ended)(published("2")); err != nil || len(out.published) != 2 {
		t.Errorf("a context that has ended: %v, published %+v", err, out.published)
	}
	out.refuse = errBroker
	if produced, err := h(succeed)(msg); produced != nil || err != nil {
		t.Errorf("nothing produced: %v, %v", produced, err)
	}
}

// The answer of a handler that exceeded its Timeout is ignored, so its produced messages are not published: the retry produces them again.
func TestPublishInsideDropsMessagesOfALateAnswer(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var out outbox
		orders := route(t, b, redeliver.Policy{Timeout: second, MaxRetries: redeliver.NoRetries}, &out, func(msg *message.Message) ([]*message.Message, error) {
			<-time.After(minute)
			return invoice(msg)
		}, middleware.Retry(), middleware.PublishInside(&out, "invoices"))
		<-time.After(hour)
		late := only[redeliver.LateAnswer](orders.Events())
		if len(late) != 1 || !errors.Is(late[0].Err, redeliver.ErrTimeout) || len(out.published) != 0 {
			t.Errorf("reported %+v, published %+v", late, out.published)
		}
	})
}

// A handler that nacks its message itself and returns an error must not cause two copies.
func TestNackByHandMakesOneCopy(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var out outbox
		runs := 0
		orders := route(t, b, redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(minute)}, &out, func(msg *message.Message) ([]*message.Message, error) {
			runs++
			msg.Nack()
			produced, _ := invoice(msg)
			return produced, errHandler
		}, middleware.Retry())
		if got := orders.Outcome("1"); runs != 3 || len(got.Waits) != 2 || got.State.Reason != redeliver.ReasonExhausted || len(orders.DeadLetters()) != 1 || len(out.published) != 0 {
			t.Errorf("ran %d times, published %d: %s", runs, len(out.published), got)
		}
	})
}

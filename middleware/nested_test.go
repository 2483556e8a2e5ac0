package middleware_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// A Retry within another, at the Router and at the handler, runs one attempt, and timeouts still work.
func TestARetryWithinAnotherIsOneAttempt(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{
			Timeout: 10 * second, MaxRetries: 1, Backoff: redeliver.Fixed(second),
		}}).Handle("documents", func(msg *message.Message) error {
			switch msg.UUID {
			case "fails":
				<-time.After(5 * second)
				return errors.New("no bank")
			case "hangs":
				<-msg.Context().Done()
				return msg.Context().Err()
			default:
				return nil
			}
		}, middleware.Retry())
		for _, id := range []string{"fails", "hangs", "fine"} {
			publish(b, id)
			<-time.After(second)
		}
		if got := orders.Outcome("fails"); got.State.Reason != redeliver.ReasonExhausted || len(got.Attempts) != 2 {
			t.Error(got)
		}
		if got := orders.Outcome("hangs"); got.State.Reason != redeliver.ReasonTimeout || len(got.Attempts) != 2 || got.Attempts[0].Took != 10*second {
			t.Error(got)
		}
		if got := orders.Outcome("fine"); !got.Committed || len(got.Attempts) != 1 {
			t.Error(got)
		}
	})
}

// With OrderBlocking a message whose time was over before it joined its batch has timed out.
func TestABatchMessageMayTimeOutBeforeItsBatch(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		slow := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				<-time.After(2*second - 20*time.Millisecond) // almost so long that it is stuck
				return h(msg)
			}
		}
		orders := b.Open(redelivertest.Config{Group: "search", Policy: redeliver.Policy{
			Order: redeliver.OrderBlocking, Timeout: second, MaxRetries: redeliver.NoRetries,
		}}).Handle("documents", must(middleware.Batch(redeliver.BatchConfig{Timeout: hour}, func(context.Context, *middleware.MessageBatch) error { return nil })), slow)
		publish(b, "a")
		if got := orders.Outcome("a"); got.State.Reason != redeliver.ReasonTimeout {
			t.Error(got)
		}
	})
}

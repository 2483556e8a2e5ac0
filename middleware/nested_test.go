package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// A message that keeps its place, and whose time was over before it came to its batch, has timed out.
func TestBatchComesTooLateForAMessageInItsPlace(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		slow := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				<-time.After(2*second - 20*time.Millisecond) // nearly so long that it is stuck
				return h(msg)
			}
		}
		orders := b.Open(redelivertest.Config{Group: "search", Policy: redeliver.Policy{
			Order: redeliver.Blocking, Timeout: second, MaxRetries: redeliver.NoRetries,
		}}).Handle("documents", middleware.Batch(middleware.BatchConfig{Timeout: hour}, func(context.Context, *middleware.MessageBatch) error { return nil }), slow)
		publish(b, "a")
		if got := orders.Outcome("a"); got.State.Reason != redeliver.ReasonTimeout {
			t.Error(got)
		}
	})
}

package amqp_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
)

// Two queues that share a DLQ or a retry queue would run each other's messages. They are refused at start.
func TestNamesThatTwoQueuesShareAreRefused(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	handler := func(context.Context, amqp091.Delivery) error { return nil }
	is := func(name string) func(string) string { return func(string) string { return name } }
	for shared, cfg := range map[string]amqp.Config{
		"dead":         {Names: amqp.Names{DLQ: is("dead")}},
		"retry":        {Names: amqp.Names{Retry: is("retry")}, DLQ: deadletter.Config{Discard: true}},
		"orders.retry": {}, // an origin that is the retry queue of the other one
	} {
		cfg.URLs = []string{r.VirtualHost(t).URL()}
		queues := []string{"orders", "mails"}
		if shared == "orders.retry" {
			queues[1] = shared
		}
		ctx, cancel := context.WithCancel(t.Context())
		if cfg.Sink = cancelWhenConsuming(cancel); errors.Is(amqp.Consume(ctx, cfg, queues[:1], handler), redeliver.ErrConfig) {
			t.Errorf("%s: one queue alone is refused", shared)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cfg.Sink = cancelWhenConsuming(cancel)
		err := amqp.Consume(ctx, cfg, queues, handler)
		if !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), shared+": must differ") {
			t.Errorf("%s for two queues: %v", shared, err)
		}
		cancel()
	}
}

// cancelWhenConsuming returns a sink that ends a consumer once it has begun.
func cancelWhenConsuming(cancel context.CancelFunc) redeliver.Sink {
	return redeliver.SinkFunc(func(e redeliver.Event) {
		if c, ok := e.(redeliver.SubscriptionChanged); ok && c.Change == redeliver.ChangeConsuming {
			cancel()
		}
	})
}

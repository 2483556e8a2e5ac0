package amqp

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
)

// A message allocates only its place in the batch. A batch needs less than one allocation for two messages. The clock
// stands still, because a batch that waits long is watched, which allocates.
func TestConsumeBatchAllocatesOnlyForTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, size = 20_000, 100
		per := consumeAll(t, n, 1000, func(handled chan<- int) engine.Options[*delivery] {
			return engine.Options[*delivery]{
				BatchConfig: redeliver.BatchConfig{Size: size, Concurrency: 1, Timeout: time.Minute},
				Batch: func(b *engine.Batch, all []*engine.BatchMember[*delivery]) error {
					nb := newBatch(b, all, 0)
					for i, m := range nb.Messages {
						if i%2 == 0 && !m.Ack() { // the others are done at the end
							t.Error("Ack returned false")
						}
					}
					handled <- len(nb.Messages)
					return nil
				},
			}
		})
		if per > 1.5 {
			t.Errorf("%.3f allocations for a message, not counting those of acks", per)
		}
	})
}

// ConsumeBatch refuses an invalid call before it connects.
func TestConsumeBatchRefuses(t *testing.T) {
	fine := func(context.Context, *Batch) error { return nil }
	for want, err := range map[string]error{
		"Marshaler queues handler BatchConfig.Timeout BatchConfig.Size": ConsumeBatch(t.Context(), Config{MaxInFlight: 5, Marshaler: DefaultMarshaler{}}, nil, redeliver.BatchConfig{Size: 6, Timeout: -5}, nil),
		"BatchConfig.Timeout": ConsumeBatch(t.Context(), Config{}, []string{"orders", "mails"}, redeliver.BatchConfig{Timeout: 30 * time.Minute}, fine),
		"BatchConfig.Size":    ConsumeBatch(t.Context(), Config{}, []string{"orders"}, redeliver.BatchConfig{Size: DefaultMaxInFlight + 1}, fine),
	} {
		refused, ok := errors.AsType[*redeliver.ConfigError](err)
		if !ok {
			t.Fatal(err)
		}
		var fields []string
		for _, p := range refused.Problems {
			fields = append(fields, p.Field)
		}
		if got := strings.Join(fields, " "); got != want {
			t.Errorf("refused for %q, want %q: %v", got, want, err)
		}
	}
}

// A partial batch must run before the broker takes its messages back.
func TestABatchTimeoutAboveConsumerTimeoutIsRefused(t *testing.T) {
	fixed := redeliver.Fixed(5 * time.Second)
	key := func(amqp091.Delivery) string { return "one" }
	for name, c := range map[string]struct {
		policy  redeliver.Policy
		timeout time.Duration
		refused bool
	}{
		"above":                   {redeliver.Policy{Backoff: fixed, Timeout: 5 * time.Second}, 100 * time.Second, true},
		"with the handler's time": {redeliver.Policy{Backoff: fixed, Timeout: 5 * time.Second}, 16 * time.Second, true},
		"the most":                {redeliver.Policy{Backoff: fixed, Timeout: 5 * time.Second}, 14 * time.Second, false},
		"with immediate retries":  {redeliver.Policy{Backoff: fixed, Timeout: 5 * time.Second, Immediate: 1}, 6 * time.Second, true},
		"with jitter":             {redeliver.Policy{Backoff: redeliver.ExponentialBackoff{Base: 5 * time.Second}, Timeout: 5 * time.Second}, 11 * time.Second, true},
		"with a wait in place":    {redeliver.Policy{Backoff: fixed, Timeout: 5 * time.Second, Order: redeliver.OrderThroughRetries}, 11 * time.Second, true},
		"without a handler's end": {redeliver.Policy{Backoff: fixed, Timeout: redeliver.NoTimeout}, 19 * time.Second, false},
		"no wait":                 {redeliver.Policy{Backoff: fixed, Timeout: 20 * time.Second}, redeliver.NoWait, false},
	} {
		cfg := Config{ConsumerTimeout: 20 * time.Second, Policy: c.policy, Key: key}
		var ps check.Problems
		engine.CheckBatchWait(&ps, redeliver.BatchConfig{Timeout: c.timeout}.WithDefaults(), cfg.holders([]string{"orders"})...)
		if err := ps.Err(); errors.Is(err, redeliver.ErrConfig) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

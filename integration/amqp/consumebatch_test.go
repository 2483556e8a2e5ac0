package amqp_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/middleware"
)

// consumeBatch opens a service that handles batches in the client's own form.
func (h *harness) consumeBatch(t testing.TB, cfg adaptertest.Config, bc redeliver.BatchConfig, fn adaptertest.BatchFunc) (run func(context.Context) error, kill func()) {
	if cfg.Policy.Order == redeliver.OrderBlocking || cfg.Policy.Order == redeliver.OrderThroughRetries {
		h.oneAtATime(t, cfg.Group)
	}
	line := &cuttableDialer{refused: &h.refused}
	return func(ctx context.Context) error {
		return amqp.ConsumeBatch(ctx, h.nativeConfig(cfg, line), []string{cfg.Origin}, bc, func(ctx context.Context, b *amqp.Batch) error {
			return fn(ctx, adaptertest.BatchOf(b))
		})
	}, line.cut
}

// consume returns a function that opens a service that handles deliveries in the client's own form. The kit runs it in make prove.
func (h *harness) consume() func(testing.TB, adaptertest.Config, func(context.Context, adaptertest.Message) error) (func(context.Context) error, func()) {
	if !brokers.Proving {
		return nil
	}
	return func(t testing.TB, cfg adaptertest.Config, fn func(context.Context, adaptertest.Message) error) (run func(context.Context) error, kill func()) {
		if cfg.Policy.Order == redeliver.OrderBlocking || cfg.Policy.Order == redeliver.OrderThroughRetries {
			h.oneAtATime(t, cfg.Group)
		}
		line := &cuttableDialer{refused: &h.refused}
		return func(ctx context.Context) error {
			return amqp.Consume(ctx, h.nativeConfig(cfg, line), []string{cfg.Group}, func(ctx context.Context, d amqp091.Delivery) error {
				return fn(ctx, seenDelivery(&d))
			})
		}, line.cut
	}
}

// nativeConfig is the configuration of a service without Watermill.
func (h *harness) nativeConfig(cfg adaptertest.Config, line *cuttableDialer) amqp.Config {
	return amqp.Config{
		URLs: []string{h.url}, Policy: cfg.Policy, Sink: cfg.Sink, MaxInFlight: cfg.MaxInFlight, MinInFlight: cfg.MinInFlight, NackDelay: cfg.NackDelay,
		DrainTimeout: cfg.DrainTimeout, SendTimeout: cfg.SendTimeout, AMQP: amqp091.Config{Dial: line.dial}, Key: amqp.KeyHeader(keyHeader),
	}
}

// A delivery of a batch may be answered by the batch's methods or by its own. Every attempt gets the same delivery.
func TestConsumeBatch(t *testing.T) {
	t.Parallel()
	l := native(t, brokers.RequireRabbitMQ(t), nil)
	answers := map[string]struct {
		reason redeliver.Reason // "" if it is committed
		runs   int
		answer func(m *amqp.BatchMessage) bool // reports whether the answer counts
	}{
		"says nothing": {"", 1, func(*amqp.BatchMessage) bool { return true }},
		"acks":         {"", 1, func(m *amqp.BatchMessage) bool { return m.Ack() }},
		"retries once": {"", 2, func(m *amqp.BatchMessage) bool { return m.State().Attempt() > 1 || m.RetryAfter(200*time.Millisecond) }},
		"fails":        {redeliver.ReasonExhausted, 3, func(m *amqp.BatchMessage) bool { return m.Answer(errHandler) }},
		"rejects":      {redeliver.ReasonRejected, 1, func(m *amqp.BatchMessage) bool { return m.Reject("no such card") }},
		"its own Ack": {"", 1, func(m *amqp.BatchMessage) bool {
			return m.Record.Ack(false) == nil && !m.Retry()
		}},
		"its own Nack": {redeliver.ReasonExhausted, 3, func(m *amqp.BatchMessage) bool {
			return m.Record.Nack(false, true) == nil && !m.Ack()
		}},
		"its own Reject": {redeliver.ReasonRejected, 1, func(m *amqp.BatchMessage) bool {
			return m.Record.Reject(false) == nil && !m.Ack()
		}},
		"multiple": {"", 1, func(m *amqp.BatchMessage) bool { return m.Record.Ack(true) != nil && m.Ack() }},
	}
	var all []string
	for id := range answers {
		all = append(all, id)
	}
	largest := 0
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() {
		over <- amqp.ConsumeBatch(ctx, l.cfg, []string{l.queue}, redeliver.BatchConfig{Size: len(all), Timeout: 300 * time.Millisecond}, func(_ context.Context, b *amqp.Batch) error {
			if b.Origin != l.queue || b.Group != l.queue {
				t.Errorf("a batch of %s for %s", b.Origin, b.Group)
			}
			l.update(func() { largest = max(largest, len(b.Messages)) })
			for _, m := range b.Messages {
				d := amqp.DeliveryFromContext(m.Context())
				if d == nil || d.MessageId != m.Record.MessageId || m.Record.RoutingKey != l.queue || len(m.Record.Body) == 0 {
					t.Errorf("a delivery %+v whose context has %+v", m.Record, d)
				}
				l.update(func() {
					l.runs[m.Record.MessageId] = append(l.runs[m.Record.MessageId], run{attempt: m.State().Attempt()})
				})
				if !answers[m.Record.MessageId].answer(m) {
					t.Errorf("%s: the answer does not count as expected", m.Record.MessageId)
				}
			}
			return nil
		})
	}()
	l.awaitChange("consuming", 1)
	l.publishMessages(all...)
	l.awaitEnds(all)
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, want := range answers {
		var reason redeliver.Reason
		if dead := l.dead[id]; len(dead) > 0 {
			reason = dead[0].State.Reason
		}
		if reason != want.reason || len(l.runs[id]) != want.runs || l.done[id]+len(l.dead[id]) != 1 {
			t.Errorf("%s: %d runs, reason %q, want %d, %q; %d commits, %d dead letters", id, len(l.runs[id]), reason, want.runs, want.reason, l.done[id], len(l.dead[id]))
		}
	}
	if largest < 2 {
		t.Errorf("no batch had more than %d messages", largest)
	}
}

// The broker takes a message back after the consumer timeout. A batch that may wait for longer is refused: once no partial
// batch ever ran, and its messages came again each time.
func TestABatchThatMayWaitForTheConsumerTimeoutIsRefused(t *testing.T) {
	t.Parallel()
	batch := redeliver.BatchConfig{Size: 10, Timeout: 100 * time.Second}
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.ConsumerTimeout, l.cfg.Policy.Timeout = 20*time.Second, 5*time.Second
	})
	if err := amqp.ConsumeBatch(t.Context(), l.cfg, []string{l.queue}, batch, func(context.Context, *amqp.Batch) error { return nil }); !errors.Is(err, redeliver.ErrConfig) {
		t.Errorf("ConsumeBatch: %v", err)
	}
	handle, err := middleware.Batch(batch, func(context.Context, *middleware.MessageBatch) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	l.consume(func(msg *message.Message, _ run) error { return handle(msg) })
	l.awaitChange("consuming", 1)
	l.publishMessages("m")
	l.awaitChange("batches refused", 1)
}

package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
)

// runConsume runs amqp.Consume with the fixture's configuration until end is called or the test ends. end returns
// Consume's result.
func (l *fixture) runConsume(h func(context.Context, amqp091.Delivery) error) (end func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- amqp.Consume(ctx, l.cfg, []string{l.queue}, h) }()
	ended := false
	end = func() error {
		cancel()
		if ended {
			return nil
		}
		ended = true
		return <-over
	}
	l.Cleanup(func() {
		if err := end(); err != nil {
			l.Error(err)
		}
	})
	l.awaitChange("consuming", 1)
	return end
}

// native returns a fixture without Watermill.
func native(t *testing.T, r *brokers.Rabbit, change func(*fixture)) *fixture {
	return newFixture(t, r, func(l *fixture) {
		l.cfg.Policy = steps(2, 200*time.Millisecond)
		if change != nil {
			change(l)
		}
	})
}

// A handler may answer by its error, by the delivery's methods, or not at all, on both brokers.
func TestConsume(t *testing.T) {
	t.Parallel()
	for name, r := range brokers.RequireRabbitMQs(t) {
		t.Run(name, func(t *testing.T) { consumes(t, r) })
	}
}

func consumes(t *testing.T, r *brokers.Rabbit) {
	l := native(t, r, func(l *fixture) { l.cfg.Policy.Timeout = 2 * time.Second })
	answers := map[string]struct {
		reason redeliver.Reason // "" if it is committed
		runs   int
		answer func(ctx context.Context, d amqp091.Delivery, attempt int) error
	}{
		"succeeds":       {"", 1, func(context.Context, amqp091.Delivery, int) error { return nil }},
		"acks":           {"", 1, func(_ context.Context, d amqp091.Delivery, _ int) error { return d.Ack(false) }},
		"succeeds later": {"", 2, func(_ context.Context, _ amqp091.Delivery, n int) error { return map[int]error{1: errHandler}[n] }},
		"fails":          {redeliver.ReasonExhausted, 3, func(context.Context, amqp091.Delivery, int) error { return errHandler }},
		"acks and fails": {redeliver.ReasonExhausted, 3, func(_ context.Context, d amqp091.Delivery, _ int) error {
			return errors.Join(d.Ack(false), errHandler)
		}},
		"permanent":      {redeliver.ReasonPermanent, 1, func(context.Context, amqp091.Delivery, int) error { return redeliver.Permanent(errHandler) }},
		"panics":         {redeliver.ReasonPanic, 3, func(context.Context, amqp091.Delivery, int) error { panic("no") }},
		"takes too long": {redeliver.ReasonTimeout, 3, func(ctx context.Context, _ amqp091.Delivery, _ int) error { <-ctx.Done(); return ctx.Err() }},
		"nacks":          {redeliver.ReasonExhausted, 3, func(_ context.Context, d amqp091.Delivery, _ int) error { return d.Nack(false, true) }},
		"nacks for good": {redeliver.ReasonRejected, 1, func(_ context.Context, d amqp091.Delivery, _ int) error { return d.Reject(false) }},
		"acks others":    {redeliver.ReasonExhausted, 3, func(_ context.Context, d amqp091.Delivery, _ int) error { return d.Ack(true) }},
	}
	l.runConsume(func(ctx context.Context, d amqp091.Delivery) error {
		st, _ := redeliver.FromContext(ctx)
		l.update(func() { l.runs[d.MessageId] = append(l.runs[d.MessageId], run{attempt: st.Attempt()}) })
		return answers[d.MessageId].answer(ctx, d, st.Attempt())
	})
	var all []string
	for id := range answers {
		all = append(all, id)
	}
	l.publishMessages(all...)
	l.awaitEnds(all)
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
		for i, r := range l.runs[id] {
			if r.attempt != i+1 {
				t.Errorf("%s: run %d is attempt %d", id, i+1, r.attempt)
			}
		}
	}
}

// A retry gets the same delivery as the first attempt.
func TestConsumeKeepsTheDelivery(t *testing.T) {
	t.Parallel()
	l := native(t, brokers.RequireRabbitMQ(t), nil)
	var got []amqp091.Delivery
	l.runConsume(func(ctx context.Context, d amqp091.Delivery) error {
		st, _ := redeliver.FromContext(ctx)
		if amqp.DeliveryFromContext(ctx).MessageId != d.MessageId {
			t.Error("the context has another delivery")
		}
		l.update(func() { got = append(got, d) })
		return map[int]error{1: errHandler}[st.Attempt()]
	})
	if err := l.raw.PublishWithContext(t.Context(), "", l.queue, true, false, amqp091.Publishing{
		MessageId: "m", CorrelationId: "c", ReplyTo: "r", Type: "t", AppId: "a", ContentType: "text/plain", Priority: 3, DeliveryMode: amqp091.Persistent,
		Timestamp: time.Unix(1_700_000_000, 0), Headers: amqp091.Table{"n": int32(7), "deep": amqp091.Table{"x": []any{"y", true}}}, Body: []byte("order"),
	}); err != nil {
		t.Fatal(err)
	}
	l.awaitEnds([]string{"m"})
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(got) != 2 {
		t.Fatalf("%d runs", len(got))
	}
	for i := range got { // these belong to the channel
		got[i].Acknowledger, got[i].DeliveryTag = nil, 0
	}
	if !reflect.DeepEqual(got[0], got[1]) || string(got[0].Body) != "order" || got[0].RoutingKey != l.queue {
		t.Errorf("first\n%+v\nthen\n%+v", got[0], got[1])
	}
}

// When ctx ends, running handlers may finish. A message whose handler does not comes back, with no attempt counted.
// Consume returns nil.
func TestConsumeEnds(t *testing.T) {
	t.Parallel()
	l := native(t, brokers.RequireRabbitMQ(t), func(l *fixture) { l.cfg.DrainTimeout = time.Second })
	finish := make(chan struct{})
	running := make(chan string, 2)
	end := l.runConsume(func(ctx context.Context, d amqp091.Delivery) error {
		running <- d.MessageId
		if d.MessageId == "quick" {
			<-finish
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	l.publishMessages("quick", "hangs")
	for range 2 {
		<-running
	}
	over := make(chan error)
	go func() { over <- end() }()
	close(finish)
	if err := <-over; err != nil {
		t.Error(err)
	}
	l.awaitReady(l.queue, 1)
	attempt := make(chan int, 1)
	l.runConsume(func(ctx context.Context, _ amqp091.Delivery) error {
		st, _ := redeliver.FromContext(ctx)
		attempt <- st.Attempt()
		return nil
	})
	if n := <-attempt; n != 1 {
		t.Errorf("attempt %d, want 1", n)
	}
	l.awaitEnds([]string{"quick", "hangs"})
}

// Connections are closed while a handler fails now and then: nothing is lost.
func consumesOverLostConnections(t *testing.T, r *brokers.Rabbit) {
	l := native(t, r, nil)
	l.runConsume(func(ctx context.Context, d amqp091.Delivery) error {
		st, _ := redeliver.FromContext(ctx)
		waitFor(time.Millisecond)
		if st.Attempt() == 1 && strings.HasSuffix(d.MessageId, "7") {
			return errHandler
		}
		return nil
	})
	all := ids(3000)
	l.publishMessages(all...)
	for i := range 4 {
		l.await(fmt.Sprint("progress ", i), func() bool { return len(l.done) > 500*(i+1) })
		if err := r.CloseAllConnections(t.Context(), "a test"); err != nil {
			t.Fatal(err)
		}
		l.redial()
	}
	l.awaitEnds(all)
	l.redial()
	for _, q := range []string{"", ".retry", ".retry.suspects", ".dlq"} {
		l.awaitReady(l.queue+q, 0)
	}
}

// Consume returns the errors of Open and of the broker, and leaves nothing behind.
func TestConsumeCannotBegin(t *testing.T) {
	t.Parallel()
	l := native(t, brokers.RequireRabbitMQ(t), func(l *fixture) { l.cfg.NoProvisioning = true })
	err := amqp.Consume(t.Context(), l.cfg, []string{l.queue}, func(context.Context, amqp091.Delivery) error { return nil })
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok || !slices.ContainsFunc(refused.Problems, func(p redeliver.Problem) bool { return p.Value == "missing" }) {
		t.Error(err)
	}
}

// If one of several queues cannot be read, none is read: no message of the others is fetched, and one error has the
// problems of each.
func TestConsumeChecksAllQueuesFirst(t *testing.T) {
	t.Parallel()
	l := native(t, brokers.RequireRabbitMQ(t), nil)
	l.declared()
	l.publishMessages("m")
	cfg := l.cfg
	cfg.Topology, cfg.NoProvisioning = amqp.ExistingQueue(), true
	queues := []string{l.queue, l.queue + "-gone", l.queue + "-lost"}
	err := amqp.Consume(t.Context(), cfg, queues, func(context.Context, amqp091.Delivery) error { return nil })
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok {
		t.Fatal(err)
	}
	for _, queue := range queues[1:] {
		if !slices.ContainsFunc(refused.Problems, func(p redeliver.Problem) bool { return p.Field == "queue "+queue && p.Value == "missing" }) {
			t.Errorf("the error does not mention %s: %v", queue, err)
		}
	}
	if d := l.getMessage(l.queue); d.Redelivered {
		t.Error("the messages of the first queue were fetched")
	}
}

// With a misspelled name, the queue that was meant would run the default policy.
func TestAPolicyOfAQueueThatDoesNotExistIsRefused(t *testing.T) {
	t.Parallel()
	for name, r := range brokers.RequireRabbitMQs(t) {
		t.Run(name, func(t *testing.T) {
			l := native(t, r, nil)
			l.declared()
			other := l.queue + "-mails"
			l.declare(other, nil)
			defer l.delete("-mails")
			l.cfg.Queues = map[string]redeliver.Policy{l.queue: steps(1, time.Second), other: steps(1, time.Second), l.queue + "-typo": steps(1, time.Second)}
			refused := func(call string, err error) {
				if !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), l.queue+`-typo"]`) || strings.Contains(err.Error(), other) {
					t.Errorf("%s: %v", call, err)
				}
			}
			refused("Consume", amqp.Consume(t.Context(), l.cfg, []string{l.queue}, func(context.Context, amqp091.Delivery) error { return nil }))
			l.cfg.Topology = amqp.ExistingQueue() // no later Subscribe creates the queue
			c, err := amqp.Open(t.Context(), l.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close(context.Background()) }()
			_, err = c.Subscriber().Subscribe(t.Context(), l.queue)
			refused("Subscribe", err)
		})
	}
}

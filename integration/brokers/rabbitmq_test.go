//go:build prove

package brokers_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/integration/brokers"
)

// The suites of the AMQP adapter rely on this, on both versions: a private node supports delay queues, can be killed,
// restarted and disturbed at any time, and comes back on the same address with all confirmed messages.
func TestOwnRabbitMQ(t *testing.T) {
	soakOnly(t)
	for _, version := range []brokers.RabbitMQVersion{brokers.RabbitMQ3, brokers.RabbitMQ4} {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			r := brokers.OwnRabbitMQ(t, brokers.RabbitMQOptions{
				Version: version, Config: map[string]string{"consumer_timeout": "123456"},
			})
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
			defer cancel()
			if got := r.Ctl(t, "version"); !strings.HasPrefix(strings.TrimSpace(got), string(version)+".") {
				t.Errorf("rabbitmqctl version = %q, want %s", got, version)
			}
			if got := r.Ctl(t, "eval", "application:get_env(rabbit, consumer_timeout)."); !strings.Contains(got, "{ok,123456}") {
				t.Errorf("consumer_timeout in the node = %q, want {ok,123456}", got)
			}
			delaysAndDeadLetters(ctx, t, r)
			keepsThroughItsEnds(ctx, t, r)
			closesConnections(ctx, t, r)
			blocksPublishers(ctx, t, r)

			if err := r.Stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
			if conn, err := amqp091.Dial(r.URL()); err == nil {
				_ = conn.Close()
				t.Error("the node still answers after Stop")
			}
		})
	}
}

// delaysAndDeadLetters sends a message through a quorum queue whose time to live is the delay, and which removes a
// message only after the target queue has confirmed it.
func delaysAndDeadLetters(ctx context.Context, t *testing.T, r *brokers.Rabbit) {
	t.Helper()
	ch := channel(t, r)
	declare(t, ch, "target", nil)
	declare(t, ch, "delay", amqp091.Table{
		"x-message-ttl":             int64(500),
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": "target",
		"x-dead-letter-strategy":    "at-least-once",
		"x-overflow":                "reject-publish",
	})
	began := time.Now()
	publish(ctx, t, ch, "delay", "late")
	m := receive(ctx, t, ch, "target")
	if took := time.Since(began); string(m.Body) != "late" || took < 450*time.Millisecond {
		t.Errorf("the target got %q after %s, want %q after 500ms", m.Body, took, "late")
	}
	if reason := m.Headers["x-first-death-reason"]; reason != "expired" {
		t.Errorf("x-first-death-reason = %v, want expired", reason)
	}
}

func keepsThroughItsEnds(ctx context.Context, t *testing.T, r *brokers.Rabbit) {
	t.Helper()
	url, management := r.URL(), r.Management()
	ch := channel(t, r)
	declare(t, ch, "kept", nil)
	if err := r.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	for _, end := range []struct {
		how   string
		again func() error
	}{
		{"kill and start", func() error {
			if err := r.Kill(); err != nil {
				return err
			}
			if conn, err := amqp091.Dial(url); err == nil {
				_ = conn.Close()
				t.Error("the node still answers after SIGKILL")
			}
			return r.Start(ctx)
		}},
		{"restart", func() error { return r.Restart(ctx) }},
		{"stop_app and start_app", func() error {
			if err := r.StopApp(ctx); err != nil {
				return err
			}
			if conn, err := amqp091.Dial(url); err == nil {
				_ = conn.Close()
				t.Error("the node still answers after stop_app")
			}
			return r.StartApp(ctx)
		}},
	} {
		publish(ctx, t, channel(t, r), "kept", end.how)
		began := time.Now()
		if err := end.again(); err != nil {
			t.Fatalf("%s: %v", end.how, err)
		}
		t.Logf("report: %s: %s: answers again after %s", r, end.how, time.Since(began).Round(100*time.Millisecond))
		if r.URL() != url || r.Management() != management {
			t.Errorf("%s: the node moved from %s and %s to %s and %s", end.how, url, management, r.URL(), r.Management())
		}
		if got := string(receive(ctx, t, channel(t, r), "kept").Body); got != end.how {
			t.Errorf("%s: the queue holds %q, want %q", end.how, got, end.how)
		}
	}
}

func closesConnections(ctx context.Context, t *testing.T, r *brokers.Rabbit) {
	t.Helper()
	closed := channel(t, r).NotifyClose(make(chan *amqp091.Error, 1))
	if err := r.CloseAllConnections(ctx, "for a test"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-closed:
		if err == nil || err.Code != amqp091.ConnectionForced || !strings.Contains(err.Reason, "for a test") {
			t.Errorf("the client saw %v, want CONNECTION_FORCED for a test", err)
		}
	case <-ctx.Done():
		t.Error("the connection is still open after CloseAllConnections")
	}
}

// blocksPublishers sets the memory alarm, under which the node blocks publishing connections.
func blocksPublishers(ctx context.Context, t *testing.T, r *brokers.Rabbit) {
	t.Helper()
	conn, err := amqp091.Dial(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	blocked := conn.NotifyBlocked(make(chan amqp091.Blocking, 2))
	r.Ctl(t, "set_vm_memory_high_watermark", "absolute", "1MB")
	if err := ch.PublishWithContext(ctx, "", "kept", false, false, amqp091.Publishing{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		select {
		case b := <-blocked:
			if b.Active != want {
				t.Errorf("blocked = %v (%s), want %v", b.Active, b.Reason, want)
			}
		case <-ctx.Done():
			t.Fatalf("the node did not report blocked = %v", want)
		}
		r.Ctl(t, "set_vm_memory_high_watermark", "0.4")
	}
}

func channel(t *testing.T, r *brokers.Rabbit) *amqp091.Channel {
	t.Helper()
	conn, err := amqp091.Dial(r.URL())
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the node may have closed it before
	ch, err := conn.Channel()
	if err != nil {
		t.Fatalf("opening a channel: %v", err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatalf("confirm mode: %v", err)
	}
	return ch
}

// declare declares a quorum queue.
func declare(t *testing.T, ch *amqp091.Channel, queue string, args amqp091.Table) {
	t.Helper()
	all := amqp091.Table{"x-queue-type": "quorum"}
	maps.Copy(all, args)
	if _, err := ch.QueueDeclare(queue, true, false, false, false, all); err != nil {
		t.Fatalf("declaring %s: %v", queue, err)
	}
}

func publish(ctx context.Context, t *testing.T, ch *amqp091.Channel, queue, body string) {
	t.Helper()
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false,
		amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: []byte(body)})
	if err != nil {
		t.Fatalf("publishing to %s: %v", queue, err)
	}
	if acked, err := confirm.WaitContext(ctx); err != nil || !acked {
		t.Fatalf("publishing to %s: acked = %v, %v", queue, acked, err)
	}
}

// receive takes one message from the queue.
func receive(ctx context.Context, t *testing.T, ch *amqp091.Channel, queue string) amqp091.Delivery {
	t.Helper()
	tag := fmt.Sprint("one from ", queue)
	deliveries, err := ch.ConsumeWithContext(ctx, queue, tag, false, false, false, false, nil)
	if err != nil {
		t.Fatalf("consuming from %s: %v", queue, err)
	}
	select {
	case m, ok := <-deliveries:
		if !ok {
			t.Fatalf("the channel was closed while waiting for a message from %s", queue)
		}
		if err := m.Ack(false); err != nil {
			t.Fatalf("acking: %v", err)
		}
		if err := ch.Cancel(tag, false); err != nil {
			t.Fatalf("ending the consumer: %v", err)
		}
		return m
	case <-ctx.Done():
		t.Fatalf("no message came from %s", queue)
		return amqp091.Delivery{}
	}
}

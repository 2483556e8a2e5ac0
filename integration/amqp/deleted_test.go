//go:build prove

package amqp_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/limits"
)

// A queue is deleted during a subscription. It is declared again, and everything continues.
func TestQueueIsDeletedDuringASubscription(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	for name, c := range map[string]struct {
		suffix string
		read   bool // the subscription reads it and loses its consumer
	}{
		"queue":    {"", true},
		"retry":    {".retry", true},
		"suspects": {".retry.suspects", true},
		"level":    {".retry.200ms", true},
		"dlq":      {".dlq", false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newFixture(t, r, nil)
			l.consume(func(msg *message.Message, r run) error {
				switch {
				case strings.HasPrefix(msg.UUID, "bad"):
					return redeliver.Permanent(errHandler)
				case r.attempt == 1:
					return errHandler
				default:
					return nil
				}
			})
			l.awaitChange("consuming", 1)
			l.publishMessages("before", "bad-before")
			l.awaitEnds([]string{"before", "bad-before"})
			if _, err := l.raw.QueueDelete(l.queue+c.suffix, false, false, false); err != nil {
				t.Fatal(err)
			}
			if c.read {
				l.awaitChange("disconnected", 1)
				l.awaitChange("consuming", 2)
			}
			l.publishMessages("after", "bad-after")
			l.awaitEnds([]string{"after", "bad-after"})
			l.awaitReady(l.queue+".dlq", map[bool]int{true: 1, false: 2}[name == "dlq"])
			l.awaitReady(l.queue+".retry.suspects", 0)
			l.checkNothingEarly()
			l.mu.Lock()
			defer l.mu.Unlock()
			if n := l.duplicatesLocked(); n > 0 || len(l.runs["after"]) != 2 {
				t.Errorf("%d runs too many, and %d runs of a message that fails once", n, len(l.runs["after"]))
			}
			if n := l.countLocked("intake paused"); n > 0 {
				t.Errorf("the intake was paused %d times", n)
			}
		})
	}
}

// A user's queue that is deleted is not declared by redeliver, which waits until it exists again.
func TestExistingQueueIsDeletedDuringASubscription(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.Topology = amqp.ExistingQueue()
		l.declareQueue(nil)
	})
	l.consume(func(*message.Message, run) error { return nil })
	l.awaitChange("consuming", 1)
	if _, err := l.raw.QueueDelete(l.queue, false, false, false); err != nil {
		t.Fatal(err)
	}
	l.awaitChange("disconnected", 1)
	if err := l.client.Publisher().Publish(l.queue, message.NewMessage("lost", nil)); err == nil || !strings.Contains(err.Error(), "no queue takes messages of queue "+l.queue) {
		t.Errorf("publishing to a deleted queue returns: %v", err)
	}
	l.declareQueue(nil)
	l.awaitChange("consuming", 2)
	l.publishMessages("after")
	l.awaitEnds([]string{"after"})
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.countLocked("disconnected"); n != 1 {
		t.Errorf("reported %d times that it is disconnected, want once", n)
	}
}

// A publish to a missing exchange closes its channel with a clear error, and does not affect retries.
func TestPublishToMissingExchange(t *testing.T) {
	t.Parallel()
	const missing = "there-is-no-such-exchange"
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.Topology = amqp.ExistingQueue()
		l.cfg.Topology.Exchange = func(topic string) string { return strings.TrimPrefix(topic, l.queue) }
		l.declareQueue(nil)
	})
	l.consume(func(msg *message.Message, r run) error {
		if r.attempt > 2 {
			return nil
		}
		if err := l.client.Publisher().Publish(missing, message.NewMessage(msg.UUID, nil)); err == nil || !strings.Contains(err.Error(), "no exchange '"+missing+"'") {
			t.Errorf("publishing to a missing exchange returns: %v", err)
		}
		return errHandler
	})
	all := ids(300)
	l.publishMessages(all...)
	l.awaitEnds(all)
	l.checkNothingEarly()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if f, ok := e.(redeliver.PublishFailed); ok {
			t.Fatalf("a retry was disturbed: %v", f.Err)
		}
	}
	if n := l.duplicatesLocked(); n > 0 {
		t.Errorf("%d runs too many", n)
	}
	if n := l.countLocked("disconnected"); n > 0 {
		t.Errorf("%d times disconnected", n)
	}
	if err := l.client.Publisher().Publish(l.queue, message.NewMessage("fine", nil)); err != nil {
		t.Errorf("publishing afterwards: %v", err)
	}
}

// A message to a missing exchange closes the channel of all publishes. Those to other exchanges once failed with it.
func TestAMissingExchangeFailsOnlyItsOwnPublishes(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.Topology = amqp.ExistingQueue()
		l.cfg.Topology.Exchange = func(topic string) string { return strings.TrimPrefix(topic, l.queue) }
		l.declareQueue(nil)
	})
	p := l.client.Publisher()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 5 {
				if err := p.Publish("there-is-no-such-exchange", message.NewMessage("lost", nil)); err == nil {
					t.Error("a publish to a missing exchange has no error")
				}
			}
		})
		all.Go(func() {
			for range 5 {
				if err := p.Publish(l.queue, message.NewMessage("fine", nil), message.NewMessage("fine", nil)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// Another publisher's message on the retry queue is delivered as new. One that comes back often is a suspect, but not
// before it is due.
func TestSuspectsAreNotEarly(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.Policy = redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(time.Minute), Levels: []time.Duration{time.Minute}}
	})
	l.declared()
	due := limits.CeilMilli(time.Now().Add(4 * time.Second).UTC())
	st := redeliver.State{ID: "held", Group: l.queue, Origin: l.queue, Attempts: 1, Due: due, FirstFailed: due.Add(-time.Minute), LastFailed: due.Add(-time.Minute)}
	headers := amqp091.Table{amqp.HeaderExchange: "", amqp.HeaderRoutingKey: l.queue}
	for name, value := range driver.StateHeaders(&st) {
		headers[name] = string(value)
	}
	retry := l.queue + ".retry"
	if err := l.raw.Publish("", retry, true, false, amqp091.Publishing{Headers: headers, MessageId: "held", DeliveryMode: amqp091.Persistent}); err != nil {
		t.Fatal(err)
	}
	l.awaitReady(retry, 1)
	for range 3 { // as if the process that held it had died
		d, ok, err := l.raw.Get(retry, false)
		if err != nil || !ok {
			t.Fatalf("no message: %v", err)
		}
		if err := d.Reject(true); err != nil {
			t.Fatal(err)
		}
		l.awaitReady(retry, 1)
	}
	l.consume(func(*message.Message, run) error { return nil })
	l.awaitEnds([]string{"held"})
	l.checkNothingEarly()
	l.mu.Lock()
	defer l.mu.Unlock()
	if runs := l.runs["held"]; len(runs) != 1 || runs[0].attempt != 2 {
		t.Errorf("runs are %+v, want one, attempt 2", runs)
	}
}

// Closing ends while the broker does not answer.
func closeDuringAnAlarm(t *testing.T, r *brokers.Rabbit) {
	l := newFixture(t, r, func(l *fixture) { l.cfg.DrainTimeout = time.Second })
	fail := make(chan struct{})
	l.consume(func(*message.Message, run) error {
		<-fail
		return errHandler
	})
	l.awaitChange("consuming", 1)
	l.publishMessages("m")
	l.await("handler", func() bool { return len(l.runs["m"]) == 1 })
	memoryAlarm.raise(t, r)
	close(fail)
	l.awaitChange("blocked", 1)
	if _, err := l.raw.QueueDelete(l.queue+".retry", false, false, false); err != nil {
		t.Fatal(err)
	}
	l.awaitChange("disconnected", 1)
	l.awaitChange("consuming", 2) // declarations work although publishing is blocked
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := l.client.Close(ctx); err != nil {
		t.Error(err)
	}
}

// The queue that a publisher declared is deleted. The next publish reports it, and the one after it declares the
// queue again.
func TestPublisherDeclaresAgain(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	t.Run("level", func(t *testing.T) {
		l := newFixture(t, r, nil)
		publish := func(id string) error {
			msg := message.NewMessage(id, nil)
			delay.Message(msg, delay.For(time.Second))
			return l.client.Publisher().Publish(l.queue, msg)
		}
		if err := publish("lost"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.raw.QueueDelete(l.queue+".retry.200ms", false, false, false); err != nil {
			t.Fatal(err)
		}
		if err := publish("refused"); err == nil || !strings.Contains(err.Error(), "no queue takes messages of queue "+l.queue+".retry.200ms") {
			t.Errorf("publishing to a deleted level returns: %v", err)
		}
		if err := publish("second"); err != nil {
			t.Errorf("publishing again says: %v", err)
		}
		// Not earlier: a subscriber would declare it too.
		l.consume(func(*message.Message, run) error { return nil })
		l.awaitEnds([]string{"second"})
	})
	t.Run("exchange", func(t *testing.T) {
		l := newFixture(t, r, func(l *fixture) {
			l.cfg.Topology = amqp.PubSub("g")
			l.cfg.Topology.Queue = func(topic string) string { return topic }
		})
		t.Cleanup(func() { _ = l.raw.ExchangeDelete(l.queue, false, false) })
		l.consume(func(*message.Message, run) error { return nil })
		if err := l.client.Publisher().Publish(l.queue, message.NewMessage("first", nil)); err != nil {
			t.Fatal(err)
		}
		if err := l.raw.ExchangeDelete(l.queue, false, false); err != nil {
			t.Fatal(err)
		}
		if err := l.client.Publisher().Publish(l.queue, message.NewMessage("refused", nil)); err == nil || !strings.Contains(err.Error(), "no exchange '"+l.queue+"'") {
			t.Errorf("publishing to a deleted exchange returns: %v", err)
		}
		// The exchange is declared, but nothing is bound to it, and the error names that.
		if err := l.client.Publisher().Publish(l.queue, message.NewMessage("second", nil)); err == nil || !strings.Contains(err.Error(), "no queue takes messages of exchange "+l.queue) {
			t.Errorf("publishing again says: %v", err)
		}
	})
}

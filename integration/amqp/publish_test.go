package amqp_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
)

// An unroutable publish is an error, even if a routable publish with the same identity is in flight.
func TestUnroutable(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), nil)
	l.declared()
	p := l.client.Publisher()
	missing := l.queue + "-missing"
	err := p.Publish(missing, message.NewMessage("m", nil), message.NewMessage("m", nil))
	if err == nil || strings.Count(err.Error(), "no queue takes messages of queue "+missing) != 2 {
		t.Errorf("two unroutable publishes of one identity return: %v", err)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if err := p.Publish(missing, message.NewMessage("same", nil)); err == nil {
				t.Error("a publish that no queue accepts had no error")
			}
		})
		wg.Go(func() {
			if err := p.Publish(l.queue, message.NewMessage("same", nil)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	l.awaitReady(l.queue, 50)
}

// Of two publishes with one identity to one place, one is returned. Neither counts as written, because it is unknown
// which one it was.
func TestSameIdentityOneReturned(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), nil)
	p := l.client.Publisher()
	var wg sync.WaitGroup
	var mu sync.Mutex
	fine := 0
	for range 100 {
		wg.Go(func() {
			if p.Publish(l.queue, message.NewMessage("same", nil)) == nil {
				mu.Lock()
				fine++
				mu.Unlock()
			}
		})
		wg.Go(func() { // meanwhile the queue is declared
			if _, err := l.raw.QueueDeclare(l.queue, true, false, false, false, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := l.ready(l.queue); n < fine {
		t.Errorf("%d publishes were confirmed and %d messages are there", fine, n)
	}
}

// A full queue refuses messages, and the error names that.
func TestFullQueueRefuses(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.declareQueue(amqp091.Table{"x-max-length": int32(5), "x-overflow": "reject-publish"})
	})
	var errs []error
	for i := range 20 {
		if err := l.client.Publisher().Publish(l.queue, message.NewMessage(fmt.Sprint(i), nil)); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) < 10 || !strings.Contains(errs[0].Error(), "publishing to queue "+l.queue+": the broker refused the message (the queue is full") {
		t.Errorf("publishing 20 messages to a queue for 5 returns: %v", errors.Join(errs...))
	}
	if n := l.ready(l.queue) + len(errs); n != 20 {
		t.Errorf("%d messages are in the queue or were refused, want 20", n)
	}
}

// More messages than the 1,024 slots in one call, in many concurrent calls. Each call once held a part of the slots and
// waited for the others.
func TestPublishMoreThanTheWindow(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), nil)
	l.declared()
	const calls, each = 8, 3000
	var wg sync.WaitGroup
	for c := range calls {
		wg.Go(func() {
			messages := make([]*message.Message, each)
			for i := range messages {
				messages[i] = message.NewMessage(fmt.Sprintf("%d-%d", c, i), nil)
			}
			if err := l.client.Publisher().Publish(l.queue, messages...); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	l.awaitReady(l.queue, calls*each)
}

// A due delayed publish goes through the exchange to all its groups.
func TestDelayedPublishReachesAllGroups(t *testing.T) {
	t.Parallel()
	const wait = 1500 * time.Millisecond
	r := brokers.RequireRabbitMQ(t)
	topic := unique(t)
	var groups []*fixture
	for _, group := range []string{"billing", "shipping"} {
		groups = append(groups, newFixture(t, r, func(l *fixture) {
			l.queue = topic + "_" + group
			l.cfg.Topology = amqp.PubSub(group)
			l.cfg.Policy = steps(3, time.Second)
		}))
	}
	t.Cleanup(func() { _ = groups[1].raw.ExchangeDelete(topic, false, false) })
	arrived := make(chan time.Time, 10)
	for _, l := range groups {
		messages, err := l.client.Subscriber().Subscribe(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for msg := range messages {
				arrived <- time.Now()
				msg.Ack()
			}
		}()
	}
	retryWhileLate(t, 5*time.Second, func() (late time.Duration) {
		msg := message.NewMessage(rand.Text(), []byte("x"))
		delay.Message(msg, delay.For(wait))
		begun := time.Now()
		if err := groups[0].client.Publisher().Publish(topic, msg); err != nil {
			t.Fatal(err)
		}
		for range groups {
			select {
			case at := <-arrived:
				took := at.Sub(begun)
				if took < wait {
					t.Errorf("arrived after %v, want %v", took, wait)
				}
				late = max(late, took-wait)
			case <-time.After(maxWait):
				t.Fatal("a group got no message")
			}
		}
		for _, l := range groups {
			l.await("commit", func() bool { return l.done[msg.UUID] == 1 })
		}
		if n := len(arrived); n > 0 {
			t.Errorf("%d deliveries too many", n)
		}
		return late
	})
}

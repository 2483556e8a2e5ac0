package amqp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/limits"
)

// A message that looks like a delayed publish but names another exchange or queue goes to its own handler, and is
// reported.
func TestADelayedPublishToElsewhere(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	for name, place := range map[string]func(elsewhere string) (exchange, key string){
		"an exchange": func(elsewhere string) (string, string) { return elsewhere, "k" },
		"a queue":     func(elsewhere string) (string, string) { return "", elsewhere },
	} {
		t.Run(name, func(t *testing.T) {
			l := newFixture(t, r, nil)
			l.declared()
			elsewhere := unique(t)
			if err := l.raw.ExchangeDeclare(elsewhere, amqp091.ExchangeFanout, false, true, false, false, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := l.raw.QueueDeclare(elsewhere, false, true, false, false, nil); err != nil {
				t.Fatal(err)
			}
			if err := l.raw.QueueBind(elsewhere, "", elsewhere, false, nil); err != nil {
				t.Fatal(err)
			}
			exchange, key := place(elsewhere)
			st := redeliver.State{
				ID: "later", Group: l.queue, Origin: l.queue, Due: limits.CeilMilli(time.Now().Add(200 * time.Millisecond).UTC()),
				Policy: delayqueue.Fingerprint(l.cfg.Policy),
			}
			l.writeOwn(".retry.200ms", exchange, key, st)
			l.consume(func(*message.Message, run) error { return nil })
			l.awaitEnds([]string{"later"})
			l.wantFinding(amqp.HeaderExchange, "is not where the topology publishes; the message goes to its own handler")
			if n := l.ready(elsewhere); n > 0 {
				t.Errorf("%d messages were published elsewhere", n)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, e := range l.events {
				if p, ok := e.(redeliver.Published); ok {
					t.Errorf("published to %s", p.Topic)
				}
			}
		})
	}
}

// The exchange is deleted while a delayed publish waits. It is declared again, and the queue bound to it.
func TestAnExchangeDeletedWhileAPublishWaits(t *testing.T) {
	t.Parallel()
	topic := unique(t)
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.queue = topic + "_g"
		l.cfg.Topology = amqp.PubSub("g")
		l.cfg.Policy = steps(3, time.Second)
	})
	t.Cleanup(func() { _ = l.raw.ExchangeDelete(topic, false, false) })
	messages, err := l.client.Subscriber().Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	msg := message.NewMessage("later", []byte("x"))
	delay.Message(msg, delay.For(1500*time.Millisecond))
	if err := l.client.Publisher().Publish(topic, msg); err != nil {
		t.Fatal(err)
	}
	if err := l.raw.ExchangeDelete(topic, false, false); err != nil {
		t.Fatal(err)
	}
	select {
	case msg := <-messages:
		if msg.UUID != "later" || string(msg.Payload) != "x" {
			t.Errorf("got %s with %q", msg.UUID, msg.Payload)
		}
		msg.Ack()
	case <-time.After(maxWait):
		t.Fatal("it was published without a subscriber")
	}
	l.await("commit", func() bool { return l.done["later"] == 1 })
	// The queue is bound again.
	if err := l.client.Publisher().Publish(topic, message.NewMessage("now", nil)); err != nil {
		t.Error(err)
	}
	(<-messages).Ack()
}

// No queue takes a delayed publish with the topology's routing key. It goes to the DLQ, and the others run. It once stopped
// the subscription for good.
func TestADelayedPublishThatNoQueueTakes(t *testing.T) {
	t.Parallel()
	exchange := unique(t)
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.Topology = amqp.Topology{
			Exchange:    func(string) string { return exchange },
			Kind:        amqp091.ExchangeTopic,
			BindingKeys: func(string) []string { return []string{"order.placed.*"} },
		}
	})
	t.Cleanup(func() { _ = l.raw.ExchangeDelete(exchange, false, false) })
	l.consume(func(*message.Message, run) error { return nil })
	msg := message.NewMessage("later", nil)
	delay.Message(msg, delay.For(300*time.Millisecond))
	if err := l.client.Publisher().Publish(l.queue, msg); err != nil {
		t.Fatal(err)
	}
	l.await("dead letter or pause", func() bool { return len(l.dead["later"]) > 0 || l.countLocked("intake paused") > 0 })
	l.publishMessages("new")
	l.awaitEnds([]string{"later", "new"})
	l.mu.Lock()
	defer l.mu.Unlock()
	dead := l.dead["later"]
	if len(dead) != 1 || dead[0].State.Reason != redeliver.ReasonUnschedulable || !strings.Contains(dead[0].State.Error, "declare or bind") {
		t.Errorf("dead-lettered: %+v", dead)
	}
	if n := l.countLocked("intake paused"); n > 0 {
		t.Errorf("the intake was paused %d times", n)
	}
}

// A full origin refuses a delayed publish that is due. Its messages run nevertheless, and make room. The subscription
// once waited for room forever.
func TestADelayedPublishToAFullQueue(t *testing.T) {
	t.Parallel()
	const maxLength, backlog = 5, 40
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.declareQueue(amqp091.Table{"x-max-length": int32(maxLength), "x-overflow": "reject-publish"})
		l.cfg.MaxInFlight = 1
	})
	refused := make(chan struct{})
	l.consume(func(*message.Message, run) error { <-refused; return nil })
	all := ids(backlog)
	fill := func() { // until the queue is full
		for len(all) > 0 && l.client.Publisher().Publish(l.queue, message.NewMessage(all[0], nil)) == nil {
			all = all[1:]
		}
	}
	fill()
	msg := message.NewMessage("later", nil)
	delay.Message(msg, delay.For(300*time.Millisecond))
	if err := l.client.Publisher().Publish(l.queue, msg); err != nil {
		t.Fatal(err)
	}
	l.await("refused publish", func() bool {
		return slices.ContainsFunc(l.events, func(e redeliver.Event) bool {
			f, ok := e.(redeliver.PublishFailed)
			return ok && f.State.ID == "later" && f.Where == "queue "+l.queue
		})
	})
	close(refused)
	for over := time.Now().Add(maxWait); len(all) > 0; fill() {
		if time.Now().After(over) {
			t.Fatalf("the queue takes no more messages: %d are left", len(all))
		}
	}
	l.awaitEnds(append(ids(backlog), "later"))
}

// A full origin refuses more delayed publishes than the broker sends ahead. A retry behind them in the retry queue runs
// nevertheless. It once waited until the origin had room.
func TestDelayedPublishesToAFullQueueHoldUpNoRetry(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.declareQueue(amqp091.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
		l.cfg.MaxInFlight, l.cfg.MaxRetriesInFlight, l.cfg.RetryPrefetch = 1, 1, 2
		l.cfg.Policy = steps(3, 2*time.Second)
	})
	retried, free := make(chan struct{}, 10), make(chan struct{})
	l.consume(func(msg *message.Message, r run) error {
		switch {
		case msg.UUID != "fails":
			<-free // it keeps the only slot, and so the queue full
			return nil
		case r.attempt == 1:
			return errHandler
		}
		retried <- struct{}{}
		return nil
	})
	for n := range 10 {
		msg := message.NewMessage(fmt.Sprint("later ", n), nil)
		delay.Message(msg, delay.For(2*time.Second))
		if err := l.client.Publisher().Publish(l.queue, msg); err != nil {
			t.Fatal(err)
		}
	}
	l.publishMessages("fails")
	for n := 0; ; n++ {
		if err := l.client.Publisher().Publish(l.queue, message.NewMessage(fmt.Sprint("blocks ", n), nil)); err != nil {
			break // the queue is full
		}
	}
	select {
	case <-retried:
	case <-time.After(maxWait):
		t.Error("the retry waits for the delayed publishes")
	}
	close(free)
}

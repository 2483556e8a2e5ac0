package amqp_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

// limited returns the arguments of a queue from which RabbitMQ drops a message at its 21st delivery. RabbitMQ 4 has
// that limit by default.
func limited(version string) amqp091.Table {
	args := amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}
	if version == "3.10" {
		args["x-delivery-limit"] = int32(20)
	}
	return args
}

// While a message cannot be written, the other messages return to the broker once and wait there.
func TestAPausedIntakeDropsNothing(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			line := &cuttableDialer{refused: new(sync.Map)}
			l := newFixture(t, r, func(l *fixture) {
				l.cfg.AMQP.Dial, l.cfg.ConsumerTimeout, l.cfg.Policy.Timeout = line.dial, time.Second, time.Second
				l.declareQueue(limited(version))
			})
			l.declared()
			line.refused.Store(l.queue+".", true) // levels, retry and DLQ
			l.consume(func(msg *message.Message, r run) error {
				if msg.UUID == "failing" && r.attempt == 1 {
					return errHandler
				}
				return nil
			})
			l.publishMessages("failing")
			l.awaitChange("intake paused", 1)
			all := ids(50)
			l.publishMessages(all...)
			// Thirty returns, if messages were still returned every half of ConsumerTimeout.
			waitFor(12 * time.Second)
			l.mu.Lock()
			for _, id := range all {
				if len(l.runs[id]) > 0 {
					t.Errorf("%s ran while the intake was paused", id)
				}
			}
			l.mu.Unlock()
			line.refused.Clear()
			all = append(all, "failing")
			l.awaitEnds(all)
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.dead) > 0 {
				t.Errorf("dead letters: %v, want none", l.deadIDsLocked())
			}
		})
	}
}

// While the policy holds messages back in an outage, they stay with the broker.
func TestAnOutageDropsNothing(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := newFixture(t, r, func(l *fixture) {
				l.cfg.ConsumerTimeout, l.cfg.Policy.Timeout = time.Second, time.Second
				l.cfg.Policy.Outage = redeliver.Outage{MaxPause: 2 * time.Second}
				l.declareQueue(limited(version))
			})
			l.declared()
			over := make(chan struct{})
			l.consume(func(*message.Message, run) error {
				select {
				case <-over:
					return nil
				default:
					return errHandler
				}
			})
			all := ids(200)
			l.publishMessages(all...)
			l.awaitChange(string(redeliver.ChangeOutage), 1)
			waitFor(12 * time.Second) // as above
			close(over)
			l.awaitEnds(all)
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.dead) > 0 {
				t.Errorf("dead letters: %v, want none", l.deadIDsLocked())
			}
		})
	}
}

// A deployment is scaled to zero: each consumer that closes receives the queue's first message, see Flush in
// adapters/amqp/source.go. The broker counts that, and once dropped a single message after the 21st consumer.
func TestManyConsumersThatCloseDropNothing(t *testing.T) {
	t.Parallel()
	const consumers = 30
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := newFixture(t, r, func(l *fixture) {
				l.cfg.MaxInFlight, l.cfg.DrainTimeout = 1, maxWait
				l.declareQueue(limited(version))
			})
			l.declared()
			l.publishMessages(ids(consumers)...)
			var subs []*mq.Subscriber
			var running []*message.Message
			for range consumers {
				sub := l.client.Subscriber()
				messages, err := sub.Subscribe(context.Background(), l.queue)
				if err != nil {
					t.Fatal(err)
				}
				subs, running = append(subs, sub), append(running, <-messages)
			}
			l.publishMessages("last")
			closed := make(chan error, consumers)
			for _, sub := range subs {
				go func() { closed <- sub.Close() }()
			}
			for i, msg := range running {
				msg.Ack()
				if err := <-closed; err != nil {
					t.Fatal(err)
				}
				l.awaitQueues(fmt.Sprintf("the message after %d consumers have closed", i+1), func() bool {
					return l.ready(l.queue)+l.ready(l.queue+".retry") == 1
				})
			}
			l.consume(func(*message.Message, run) error { return nil })
			l.awaitEnds([]string{"last"})
		})
	}
}

// awaitQueues returns when ok, which asks the broker, returns true.
func (l *fixture) awaitQueues(what string, ok func() bool) {
	l.Helper()
	tick, over := time.NewTicker(20*time.Millisecond), time.After(maxWait)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-over:
			l.Fatalf("no %s within %v", what, maxWait)
		}
	}
}

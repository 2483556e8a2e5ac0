//go:build prove

package amqp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// A suspect runs so long that ready messages are returned meanwhile, and come back through another queue. Once their
// slot was never freed, and with one slot no retry ran any more.
func TestAReturnedMessageLeavesItsSlot(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.MaxRetriesInFlight = 1
		l.cfg.ConsumerTimeout = 24 * time.Second   // returned after half of that, when the level's TTL is over
		l.cfg.Policy.Timeout = redeliver.NoTimeout // the broker may take any time to count the returned messages
	})
	l.declared()
	slow := make(chan struct{})
	release := func() {
		select {
		case <-slow:
		default:
			close(slow)
		}
	}
	t.Cleanup(release)
	l.consume(func(msg *message.Message, _ run) error {
		if msg.UUID == "suspect" {
			<-slow
		}
		return nil
	})
	l.putTo(l.queue+".retry.suspects", "suspect")
	l.await("the suspect's run", func() bool { return len(l.runs["suspect"]) == 1 })
	l.putTo(l.queue+".retry.200ms", "m")
	l.awaitUnackedIn(l.queue+".retry", 1)
	release()
	l.awaitEnds([]string{"suspect", "m"})
}

// A level is deleted and declared again, by another program, before its reader notices that. RabbitMQ 3.10 continues
// with the new queue, and sends its first messages to no reader. redeliver declares it after a moment, see
// TestPublisherDeclaresAgain.
func TestALevelIsDeclaredAgainAtOnce(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ4(t), func(l *fixture) { l.cfg.Policy = steps(3, time.Second) })
	l.consume(failsOnce)
	l.awaitChange("consuming", 1)
	before := ids(20)
	l.publishMessages(before...)
	l.awaitEnds(before)
	args := amqp091.Table{
		amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, amqp091.QueueMessageTTLArg: int64(11_000), amqp091.QueueOverflowArg: "reject-publish",
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": l.queue + ".retry", "x-dead-letter-strategy": "at-least-once",
	}
	level := l.queue + ".retry.1s"
	if _, err := l.raw.QueueDelete(level, false, false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := l.raw.QueueDeclare(level, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	l.publishMessages("a", "b", "c")
	l.awaitEnds([]string{"a", "b", "c"})
	l.checkNothingEarly()
}

// A level is deleted, and redeliver notices it first. It declares the level again when the broker has notified its
// readers. Otherwise RabbitMQ 3.10 usually sends them no messages.
func TestALevelIsDeclaredAgainByRedeliver(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), nil)
	publish := func(id string) error {
		msg := message.NewMessage(id, nil)
		delay.Message(msg, delay.For(300*time.Millisecond))
		return l.client.Publisher().Publish(l.queue, msg)
	}
	l.consume(func(*message.Message, run) error { return nil })
	l.awaitChange("consuming", 1)
	all := ids(20) // the new queue's first messages count as these
	for _, id := range all {
		if err := publish(id); err != nil {
			t.Fatal(err)
		}
	}
	l.awaitEnds(all)
	for i := range 5 {
		if _, err := l.raw.QueueDelete(l.queue+".retry.200ms", false, false, false); err != nil {
			t.Fatal(err)
		}
		// The first publish is refused, unless another one was faster. Later ones may also be refused while the new
		// queue has no leader, or lose their connection.
		over, tick := time.After(maxWait), time.NewTicker(50*time.Millisecond)
		for n := 0; ; n++ {
			id := fmt.Sprintf("after-%d-%d", i, n)
			err := publish(id)
			if err == nil {
				l.awaitEnds([]string{id})
				break
			}
			select {
			case <-tick.C:
			case <-over:
				t.Fatalf("%d tries and %s after its deletion: %v", n+1, maxWait, err)
			}
		}
		tick.Stop()
		l.awaitChange("consuming", 2+i)
	}
}

// Each queue that is read has a channel. A subscription that would need more channels than the connection has is
// refused. It was once tried again forever.
func TestMoreQueuesThanChannels(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.AMQP.ChannelMax = 20
	})
	var ends []context.CancelFunc
	var last error
	for range 10 {
		ctx, end := context.WithCancel(t.Context())
		ends = append(ends, end)
		defer end()
		if _, last = l.client.Subscriber().Subscribe(ctx, l.queue); last != nil {
			break
		}
	}
	if len(ends) != 4 || last == nil || !strings.Contains(last.Error(), "takes 4 channels") {
		t.Fatalf("Subscribe %d returns: %v", len(ends), last)
	}
	ends[0]() // its channels are free afterwards
	for over := time.After(maxWait); last != nil; {
		select {
		case <-time.After(10 * time.Millisecond):
			_, last = l.client.Subscriber().Subscribe(t.Context(), l.queue)
		case <-over:
			t.Fatal(last)
		}
	}
}

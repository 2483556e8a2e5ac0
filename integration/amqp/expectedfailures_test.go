//go:build prove

package amqp_test

import (
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// A lost channel frees the slots of handlers that do not heed their context. Their messages come back and run beside
// them, so more handlers run than MaxInFlight says.
func TestExpectedFailureALostChannelFreesTheSlotsOfRunningHandlers(t *testing.T) {
	t.Parallel()
	const slots = 3
	line := &line{refused: new(sync.Map)}
	l := newLab(t, brokers.RequireRabbitMQ(t), func(l *lab) {
		l.cfg.AMQP.Dial, l.cfg.MaxInFlight = line.dial, slots
	})
	l.declared()
	l.put(ids(slots)...)
	over := make(chan struct{})
	defer close(over)
	began := make(chan struct{}, 100)
	l.consume(func(*message.Message, run) error {
		began <- struct{}{}
		<-over
		return nil
	})
	for range slots {
		<-began
	}
	line.drop()
	select {
	case <-began:
		t.Errorf("a handler began on the new channel while all %d slots were taken by handlers that still run", slots)
	case <-time.After(10 * time.Second): // it reconnects within one
	}
}

// Who may write to the default exchange may write to .retry, and redeliver believes the state of a message there. So a
// producer that publishes to queues by name can forge ids, attempts and the policy.
func TestExpectedFailureForgedStateOnTheWayBackIsBelieved(t *testing.T) {
	t.Parallel()
	l := newLab(t, brokers.RequireRabbitMQ(t), nil)
	ran := make(chan int, 10)
	l.consume(func(_ *message.Message, r run) error {
		ran <- r.attempt
		return nil
	})
	l.craft(".retry", "", l.queue, redeliver.State{ID: "forged", Group: l.queue, Origin: l.queue, Attempts: 2})
	select {
	case attempt := <-ran:
		if attempt != 1 {
			t.Errorf("a message that a producer published to .retry runs as attempt %d, want 1 or none", attempt)
		}
	case <-time.After(5 * time.Second):
	}
}

//go:build prove

package amqp_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// A producer with write access to the default exchange can write to .retry, and redeliver believes the state of a
// message there. So a producer that publishes to queues by name can forge ids, attempts and the policy.
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

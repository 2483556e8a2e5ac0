package amqp_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// Another consumer reads a classic queue exclusively. RabbitMQ answers as to a missing right, and the start was once refused with
// the advice to grant it.
func TestAQueueInExclusiveUse(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := newFixture(t, r, func(l *fixture) { l.declareQueue(nil) })
			if _, err := l.raw.Consume(l.queue, "alone", false, true, false, false, nil); err != nil {
				t.Fatal(err)
			}
			_, err := l.client.Subscriber().Subscribe(t.Context(), l.queue)
			if !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), "queue "+l.queue+" is in exclusive use: must not") || strings.Contains(err.Error(), "set_permissions") {
				t.Fatalf("the start is refused with %v", err)
			}
			if err := l.raw.Cancel("alone", false); err != nil {
				t.Fatal(err)
			}
			l.consume(func(*message.Message, run) error { return nil })
			l.publishMessages("m")
			l.awaitEnds([]string{"m"})
		})
	}
}

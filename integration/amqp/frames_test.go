package amqp_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
)

// In frames of 4,096 bytes, AMQP's smallest, the first failure once sent each message to the DLQ. Such frames are refused. In
// the smallest ones that are accepted, a message with headers of its own is retried.
func TestSmallFrames(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) { l.cfg.AMQP = amqp091.Config{FrameSize: 8192} })
	small := l.cfg
	small.AMQP.FrameSize = 4096
	if _, err := amqp.Open(t.Context(), small); !errors.Is(err, redeliver.ErrConfig) {
		t.Errorf("frames of 4096 bytes: %v", err)
	}
	l.consume(func(_ *message.Message, r run) error {
		if r.attempt == 1 {
			return errHandler
		}
		return nil
	})
	l.awaitChange("consuming", 1)
	l.write(l.queue, amqp091.Publishing{MessageId: "m", DeliveryMode: amqp091.Persistent, Headers: amqp091.Table{"theirs": strings.Repeat("t", 1500)}})
	l.awaitEnds([]string{"m"})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done["m"] != 1 || len(l.dead["m"]) > 0 {
		t.Errorf("it was handled %d times, in the DLQ: %v", l.done["m"], l.dead["m"])
	}
}

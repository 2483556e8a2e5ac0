package amqp_test

import (
	"context"
	"sync"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/mq"
)

// The contract of a deadletter.Queue runs on the oldest and the newest RabbitMQ.
func TestDeadLetterQueue(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			v := b.VirtualHost(t)
			adaptertest.RunDeadLetters(t, newHarness(t, v), deadLetters(v.URL()))
		})
	}
}

// deadLetters opens DLQs, each with its own connections, which are cut when its process is killed.
func deadLetters(url string) adaptertest.DeadLetters {
	return func(t testing.TB, origin, group string) (deadletter.Queue, func()) {
		t.Helper()
		line := &cuttableDialer{refused: &sync.Map{}}
		c, err := amqp.Open(context.Background(), amqp.Config{
			URLs: []string{url}, Sink: redeliver.SinkFunc(func(redeliver.Event) {}), AMQP: amqp091.Config{Dial: line.dial},
			Topology: amqp.Topology{Queue: func(string) string { return group }},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) }) // it may have been killed
		q, err := c.Operations().DeadLetters(context.Background(), mq.DeadLetterConfig{Topic: origin})
		if err != nil {
			t.Fatal(err)
		}
		return q, line.cut
	}
}

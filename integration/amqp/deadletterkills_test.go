//go:build prove

package amqp_test

import (
	"testing"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
)

// A runner is killed between any two calls of its driver, on the oldest and the newest RabbitMQ.
func TestDeadLetterKills(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			v := b.VirtualHost(t)
			adaptertest.RunDeadLetterKills(t, newHarness(t, v), deadLetters(v.URL()))
		})
	}
}

//go:build prove

package amqp_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
)

// The conformance kit runs on RabbitMQ 4.3 too, which counts deliveries in another way.
func TestConformanceOnRabbitMQ43(t *testing.T) {
	t.Parallel()
	b := brokers.OwnRabbitMQSoon(t, brokers.RabbitMQOptions{Version: brokers.RabbitMQ43, Brief: true})()
	begin := time.Now()
	adaptertest.Run(t, newHarness(t, b.VirtualHost(t)))
	t.Logf("report: the conformance kit on RabbitMQ 4.3: %.1f s", time.Since(begin).Seconds())
}

package amqp_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
)

// The contract of every adapter runs on RabbitMQ 3.10, and in make prove on 4.0.
func TestConformance(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			adaptertest.Run(t, newHarness(t, b.VirtualHost(t)))
			t.Logf("report: the conformance kit on RabbitMQ %s: %.1f s", version, time.Since(begin).Seconds())
		})
	}
}

func TestGuaranteeTable(t *testing.T) {
	adaptertest.CheckTable(t, "../../docs/reference/guarantees.md", "RabbitMQ", features)
}

//go:build prove

package kafka_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// The conformance kit runs on older versions too, one after another. docs/evidence/proofs.md names them.
func TestConformanceOnOlderKafkas(t *testing.T) {
	for _, version := range brokers.OlderKafkas {
		t.Run(version, func(t *testing.T) {
			b := brokers.OwnKafka(t, brokers.KafkaOptions{Version: version, Session: time.Minute})
			begin := time.Now()
			h := kafkatest.New(t, b.Addrs(), nil)
			h.Compresses = false // once, on the current version, is enough for a message of 105 MB
			adaptertest.Run(t, h)
			t.Logf("report: the conformance kit on Kafka %s: %.1f s", version, time.Since(begin).Seconds())
		})
	}
}

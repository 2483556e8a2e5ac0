package kafka_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	h := kafkatest.New(t, brokers.RequireKafka(t), nil)
	if !brokers.Proving {
		h.Consume = nil // make prove runs this form
	}
	adaptertest.Run(t, h)
	t.Logf("report: the conformance kit on kafka: %.1f s", time.Since(begin).Seconds())
}

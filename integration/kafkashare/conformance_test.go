package kafkashare_test

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
	h := kafkatest.NewShare(t, brokers.RequireKafka(t))
	if !brokers.Proving {
		h.Consume = nil // make prove runs this form
	}
	adaptertest.Run(t, h)
	t.Logf("report: the conformance kit on share groups: %.1f s", time.Since(begin).Seconds())
}

// The DLQ driver of adapters/kafka, and so the command and the console, work on the DLQ of a share group.
func TestDeadLetterQueue(t *testing.T) {
	t.Parallel()
	addrs := brokers.RequireKafka(t)
	adaptertest.RunDeadLetters(t, kafkatest.NewShare(t, addrs), kafkatest.DeadLetters(addrs, 12*time.Second))
}

package kafka_test

import (
	"testing"

	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

func TestGuaranteeTable(t *testing.T) {
	t.Parallel()
	adaptertest.CheckTable(t, "../../docs/reference/guarantees.md", "Kafka", kafkatest.Features)
}

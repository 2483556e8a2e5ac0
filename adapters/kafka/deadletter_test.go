package kafka_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// lease is longer than a slow broker takes, or a live runner would lose the DLQ. Tests wait that long for a killed
// runner.
const lease = 12 * time.Second

func TestOnKafkaDeadLetterQueue(t *testing.T) {
	t.Parallel()
	addrs := onKafka(t).addrs
	adaptertest.RunDeadLetters(t, kafkatest.New(t, addrs, nil), kafkatest.DeadLetters(addrs, lease))
}

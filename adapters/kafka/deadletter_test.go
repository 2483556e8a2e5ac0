package kafka_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// lease is longer than a slow broker takes to renew one, or a live runner would lose the DLQ. After a kill, tests wait
// until it expires.
const lease = 12 * time.Second

func TestOnKafkaDeadLetterQueue(t *testing.T) {
	t.Parallel()
	addrs := onKafka(t).addrs
	adaptertest.RunDeadLetters(t, kafkatest.New(t, addrs, nil), kafkatest.DeadLetters(addrs, lease))
}

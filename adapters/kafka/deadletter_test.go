package kafka_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/adapters/adaptertest"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// lease outlives a broker that stands still for seconds, or a runner that lives loses the DLQ.
// A runner that is killed is waited for so long, beside other tests.
const lease = 12 * time.Second

func TestOnKafkaDeadLetterQueue(t *testing.T) {
	t.Parallel()
	addrs := onKafka(t).addrs
	adaptertest.RunDeadLetters(t, kafkatest.New(t, addrs, nil), kafkatest.DeadLetters(addrs, lease))
}

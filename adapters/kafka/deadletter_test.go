package kafka_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/adapters/adaptertest"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

func TestOnKafkaDeadLetterQueue(t *testing.T) {
	addrs := onKafka(t).addrs
	adaptertest.RunDeadLetters(t, kafkatest.New(t, addrs, nil), kafkatest.DeadLetters(addrs, 3*time.Second))
}

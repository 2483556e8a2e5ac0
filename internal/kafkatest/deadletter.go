package kafkatest

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/mq"
)

// DeadLetters opens DLQs of the Kafka at addrs, each with its own connections. lease is how long a killed runner keeps
// others out.
func DeadLetters(addrs []string, lease time.Duration) adaptertest.DeadLetters {
	return func(tb testing.TB, origin, group string) (deadletter.Queue, func()) {
		tb.Helper()
		dialer := newKillableDialer(&produceGuard{})
		sc := sarama.NewConfig()
		sc.Net.Proxy.Enable, sc.Net.Proxy.Dialer = true, dialer
		sc.Metadata.Retry.Max, sc.Producer.Retry.Max = 1, 1 // after a kill, do not wait for retries
		c, err := kafka.Open(context.Background(), kafka.Config{
			Brokers: addrs, Group: group, Sarama: sc, SendTimeout: 20 * time.Second,
			Sink: redeliver.SinkFunc(func(redeliver.Event) {}),
		})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = c.Close(context.Background()) }) // it may have been killed
		q, err := c.Operations().DeadLetters(context.Background(), mq.DeadLetterConfig{Topic: origin, Lease: lease})
		if err != nil {
			tb.Fatal(err)
		}
		return q, dialer.cut
	}
}

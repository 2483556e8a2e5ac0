// Package kafka_test tests adapters/kafka on an in-process Kafka and on a real one.
package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/integration/brokers"
)

// byPayload uses the payload as the key. The suite checks the order per payload, and Kafka does not order messages
// without a key.
type byPayload struct{ kafka.DefaultMarshaler }

func (m byPayload) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	rec, err := m.DefaultMarshaler.Marshal(topic, msg)
	if err == nil {
		rec.Key = sarama.ByteEncoder(msg.Payload)
	}
	return rec, err
}

// Watermill's own suite. Its ordered variant has one message in flight. Later messages overtake a nacked one, but the
// suite does not nack where it checks the order. make test runs the short form on a real Kafka with many messages in
// flight. make prove runs that variant unabridged and the others in short form. With REDELIVER_SOAK all are unabridged.
func TestWatermillSuite(t *testing.T) {
	t.Parallel()
	for _, broker := range []string{"kfake", "kafka"} {
		for _, inFlight := range []int{1, kafka.DefaultMaxInFlight} {
			if !brokers.Proving && (broker == "kfake" || inFlight == 1) {
				continue
			}
			name := map[bool]string{true: "ordered", false: "unordered"}[inFlight == 1]
			t.Run(fmt.Sprintf("%s/%s", broker, name), func(t *testing.T) {
				addrs := addresses(t, broker)
				begin := time.Now()
				t.Cleanup(func() {
					t.Logf("report: Watermill's suite on %s, %s: %.1f s", broker, name, time.Since(begin).Seconds())
				})
				pubsub := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
					client, err := kafka.Open(context.Background(), kafka.Config{
						Brokers: addrs, Group: group, MaxInFlight: inFlight, MaxRetriesInFlight: inFlight,
						Policy: redeliver.Policy{
							Outage: redeliver.Outage{Off: true}, MaxRetries: 1000, Backoff: redeliver.Fixed(time.Second), Levels: []time.Duration{time.Second},
						},
						NackDelay: time.Millisecond, DrainTimeout: 200 * time.Millisecond, RetryPartitions: 1,
						Marshaler: byPayload{}, Sink: redeliver.SinkFunc(func(redeliver.Event) {}),
					})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() {
						if err := client.Close(context.Background()); err != nil {
							t.Error(err)
						}
					})
					return client.Publisher(), client.Subscriber()
				}
				tests.TestPubSub(t, tests.Features{
					ConsumerGroups: true, ExactlyOnceDelivery: false, GuaranteedOrder: inFlight == 1, Persistent: true,
					// make prove runs one of the four unabridged: a real Kafka with many messages in flight.
					ForceShort: !brokers.Soak() && (!brokers.Proving || broker == "kfake" || inFlight == 1),
				}, func(t *testing.T) (message.Publisher, message.Subscriber) {
					return pubsub(t, "watermill")
				}, pubsub)
			})
		}
	}
}

// addresses returns the addresses of a new in-process Kafka, or of the run's real one.
func addresses(t *testing.T, broker string) []string {
	t.Helper()
	if broker == "kafka" {
		return brokers.RequireKafka(t)
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(4),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()
}

package sidecar

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// Each broker's adapter gets the minimum of messages in flight: it refuses one above the maximum.
func TestTheMinimumReachesTheAdapter(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	for _, at := range []string{"kafka://" + cluster.ListenAddrs()[0], "kafka+share://" + cluster.ListenAddrs()[0], "amqp://127.0.0.1:1", "sqs+http://127.0.0.1:1"} {
		u, err := brokerurl.ParseWith(at, "", brokerurl.Kafka, brokerurl.KafkaShare, brokerurl.RabbitMQ, brokerurl.SQS)
		if err != nil {
			t.Fatal(err)
		}
		c := Config{
			Broker: u, Topics: []string{"orders"}, InFlight: 1, RetriesInFlight: 1, MinInFlight: 9, Health: NewHealth("orders", u.Broker, nil),
			Sink: redeliver.SinkFunc(func(redeliver.Event) {}),
		}
		if u.Broker.HasGroups() {
			c.Group = "billing"
		}
		if err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "MinInFlight is 9") {
			t.Errorf("%s: %v", at, err)
		}
	}
}

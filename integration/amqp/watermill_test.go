// Package amqp_test proves adapters/amqp on a real RabbitMQ.
package amqp_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
)

// Watermill's own suite runs on a queue for each topic, and on a fanout exchange with a queue for each group. make
// test has the short form with many messages in flight. make prove has the second one unabridged, and REDELIVER_SOAK
// all. The suite deletes nothing, so its queues have their own virtual host. The variants run in parallel, before the
// parallel tests. RabbitMQ 4.0 has the short form.
func TestWatermillSuite(t *testing.T) {
	url := brokers.RequireRabbitMQ(t).VirtualHost(t).URL()
	var variants sync.WaitGroup
	defer variants.Wait()
	for _, inFlight := range []int{1, amqp.DefaultMaxInFlight} {
		if !brokers.Proving && inFlight == 1 {
			continue
		}
		for _, name := range []string{"queue", "pubsub"} {
			order := map[bool]string{true: "ordered", false: "unordered"}[inFlight == 1]
			// make prove runs one of the four unabridged: many at once.
			short := !brokers.Soak() && (!brokers.Proving || name != "pubsub" || inFlight == 1)
			variants.Go(func() {
				t.Run(name+"/"+order, func(t *testing.T) { runWatermillSuite(t, url, name, inFlight, short) })
			})
		}
	}
	if brokers.Proving {
		newer := brokers.RequireRabbitMQ4(t).VirtualHost(t).URL()
		variants.Go(func() {
			t.Run("4.0/pubsub/unordered", func(t *testing.T) { runWatermillSuite(t, newer, "pubsub", amqp.DefaultMaxInFlight, true) })
		})
	}
}

// runWatermillSuite runs the suite on a virtual host with the topology of that name.
func runWatermillSuite(t *testing.T, url, name string, inFlight int, short bool) {
	begin := time.Now()
	t.Cleanup(func() {
		t.Logf("report: Watermill's suite on RabbitMQ, %s: %.1f s", t.Name(), time.Since(begin).Seconds())
	})
	pubsub := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		topology := amqp.Queue()
		if name == "pubsub" {
			topology = amqp.PubSub(group)
		}
		client, err := amqp.Open(context.Background(), amqp.Config{
			URLs: []string{url}, Topology: topology, MaxInFlight: inFlight,
			Policy: redeliver.Policy{
				Outage: redeliver.Outage{Off: true}, MaxRetries: 1000, Backoff: redeliver.Fixed(time.Second), Levels: []time.Duration{time.Second},
			},
			NackDelay: time.Millisecond, DrainTimeout: 200 * time.Millisecond,
			Sink: redeliver.SinkFunc(func(redeliver.Event) {}),
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
		ConsumerGroups: name == "pubsub", ExactlyOnceDelivery: false, Persistent: true,
		// Consumers of one queue compete; a single one keeps its order.
		GuaranteedOrder: inFlight == 1, GuaranteedOrderWithSingleSubscriber: true, ForceShort: short,
	}, func(t *testing.T) (message.Publisher, message.Subscriber) {
		return pubsub(t, "watermill")
	}, pubsub)
}

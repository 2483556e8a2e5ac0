// Package amqp_test proves adapters/amqp on a real RabbitMQ.
package amqp_test

import (
	"context"
	"fmt"
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
// parallel tests.
func TestWatermillSuite(t *testing.T) {
	url := brokers.RequireRabbitMQ(t).VirtualHost(t).URL()
	var variants sync.WaitGroup
	defer variants.Wait()
	for _, inFlight := range []int{1, amqp.DefaultMaxInFlight} {
		if !brokers.Proving && inFlight == 1 {
			continue
		}
		for name, topology := range map[string]func(group string) amqp.Topology{
			"queue":  func(string) amqp.Topology { return amqp.Queue() },
			"pubsub": amqp.PubSub,
		} {
			order := map[bool]string{true: "ordered", false: "unordered"}[inFlight == 1]
			variant := func(t *testing.T) {
				begin := time.Now()
				t.Cleanup(func() {
					t.Logf("report: Watermill's suite on RabbitMQ, %s, %s: %.1f s", name, order, time.Since(begin).Seconds())
				})
				pubsub := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
					client, err := amqp.Open(context.Background(), amqp.Config{
						URLs: []string{url}, Topology: topology(group), MaxInFlight: inFlight,
						Policy: redeliver.Policy{
							MaxRetries: 1000, Backoff: redeliver.Fixed(time.Second), Levels: []time.Duration{time.Second},
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
					GuaranteedOrder: inFlight == 1, GuaranteedOrderWithSingleSubscriber: true,
					// make prove runs one of the four unabridged: many at once.
					ForceShort: !brokers.Soak() && (!brokers.Proving || name != "pubsub" || inFlight == 1),
				}, func(t *testing.T) (message.Publisher, message.Subscriber) {
					return pubsub(t, "watermill")
				}, pubsub)
			}
			variants.Go(func() { t.Run(fmt.Sprintf("%s/%s", name, order), variant) })
		}
	}
}

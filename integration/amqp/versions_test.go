//go:build prove

package amqp_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
)

// RabbitMQ 4.3 counts deliveries in another way: not those of returned messages. The suites that each version must pass
// run there too, on one node.
func TestOnRabbitMQ43(t *testing.T) {
	node := brokers.OwnRabbitMQSoon(t, brokers.RabbitMQOptions{Version: brokers.RabbitMQ43, Brief: true})
	t.Parallel()
	r := node()
	t.Run("conformance", func(t *testing.T) {
		t.Parallel()
		begin := time.Now()
		adaptertest.Run(t, newHarness(t, r.VirtualHost(t)))
		t.Logf("report: the conformance kit on RabbitMQ 4.3: %.1f s", time.Since(begin).Seconds())
	})
	t.Run("WatermillSuite/pubsub/unordered", func(t *testing.T) {
		t.Parallel()
		runWatermillSuite(t, r.VirtualHost(t).URL(), "pubsub", amqp.DefaultMaxInFlight, true)
	})
	for name, run := range map[string]func(*testing.T, *brokers.Rabbit){
		"knows rights": planReportsRights, "checks the right to read first": subscribeNeedsTheRightToRead, "plans enough rights": plannedRightsSuffice,
		"misses each right": eachRightTakenAwayAlone,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, r.VirtualHost(t))
		})
	}
	t.Run("rolling restarts", func(t *testing.T) {
		t.Parallel()
		rollingRestarts(t, r.VirtualHost(t))
	})
	for _, order := range []redeliver.Order{redeliver.OrderBlocking, redeliver.OrderThroughRetries} {
		t.Run("kills keep the order "+order.String(), func(t *testing.T) {
			t.Parallel()
			keepsOrderOverKills(t, r.VirtualHost(t), order)
		})
	}
}

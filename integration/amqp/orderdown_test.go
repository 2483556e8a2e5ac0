//go:build prove

package amqp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// While a dependency is down, the messages of an ordered queue wait unacked, and go back in order again and again. None
// is dead-lettered, and they keep their order.
func TestADependencyThatIsDownKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for order, down := range map[redeliver.Order]error{
		redeliver.OrderThroughRetries: errHandler,                                        // the policy detects the outage
		redeliver.OrderBlocking:       redeliver.Pause(errHandler, 300*time.Millisecond), // the policy sees too few keys fail
	} {
		for version, r := range brokers.RequireRabbitMQs(t) {
			t.Run(fmt.Sprintf("%s on %s", order, version), func(t *testing.T) {
				t.Parallel()
				keepsOrderWhileDown(t, r, order, down)
			})
		}
	}
}

func keepsOrderWhileDown(t *testing.T, r *brokers.Rabbit, order redeliver.Order, down error) {
	const keys, each = 5, 6
	change := redeliver.ChangePaused
	l := newFixture(t, r, func(l *fixture) {
		l.cfg.Policy = redeliver.Policy{Order: order, MaxRetries: 5, Backoff: redeliver.Fixed(50 * time.Millisecond), Timeout: time.Second}
		if order == redeliver.OrderThroughRetries {
			change = redeliver.ChangeOutage
			l.cfg.Policy.Outage = redeliver.Outage{MinKeys: 3, Probe: 100 * time.Millisecond, MaxPause: time.Second}
		}
		l.cfg.Key, l.cfg.ConsumerTimeout = keyOf, time.Second // messages go back after a half or a quarter of that
	})
	l.declared()
	var all, ran []string
	for n := range each {
		for key := range keys {
			all = append(all, orderID(key, n))
		}
	}
	over := make(chan struct{})
	l.consume(func(msg *message.Message, _ run) error {
		select {
		case <-over:
			l.update(func() { ran = append(ran, msg.UUID) })
			return nil
		default:
			return down
		}
	})
	l.publishMessages(all...)
	l.awaitChange(string(change), 1)
	l.awaitChange("consuming", 10) // nine times a new channel
	close(over)
	l.awaitEnds(all)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.dead) > 0 {
		t.Errorf("dead letters: %v, want none", l.deadIDsLocked())
	}
	for key := range keys {
		prefix := fmt.Sprintf("key-%d/", key)
		if order == redeliver.OrderBlocking {
			prefix = "key-"
		}
		of := func(ids []string) []string {
			return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !strings.HasPrefix(id, prefix) })
		}
		if got := slices.Compact(of(ran)); !slices.Equal(got, of(all)) {
			t.Errorf("those of %s ran in the order %q", prefix, got)
		}
	}
}

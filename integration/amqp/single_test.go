//go:build prove

package amqp_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// There is no order without a single active consumer. Plan and Subscribe refuse a queue without one, with and without
// the management API, and create nothing.
func TestAQueueWithSeveralConsumersIsRefused(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		for kind, args := range map[string]amqp091.Table{
			"quorum":     {amqp091.QueueTypeArg: amqp091.QueueTypeQuorum},
			"like ours":  {amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, "x-overflow": "reject-publish", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "x", "x-delivery-limit": int32(1000), "x-dead-letter-strategy": "at-least-once"},
			"classic":    nil,
			"limited":    {"x-max-length": int32(100), "x-overflow": "reject-publish", "x-max-priority": int32(3), "x-message-ttl": int64(600_000)},
			"explicitly": {amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, amqp091.SingleActiveConsumerArg: false},
		} {
			for _, asked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s on %s, management API %t", kind, version, asked), func(t *testing.T) {
					t.Parallel()
					l := newFixture(t, r, func(l *fixture) {
						l.cfg.Policy = redeliver.Policy{Order: redeliver.OrderBlocking}
						if asked {
							l.cfg.ManagementURL = r.Management()
						}
						l.declareQueue(args)
					})
					const want = "without a single active consumer: must have the argument x-single-active-consumer=true where the Order is OrderBlocking"
					_, err := l.client.Plan(t.Context(), l.queue)
					refused, ok := errors.AsType[*redeliver.ConfigError](err)
					if !ok || !slices.ContainsFunc(refused.Problems, func(p redeliver.Problem) bool {
						return p.Field == "queue "+l.queue && strings.Contains(p.String(), want)
					}) {
						t.Fatalf("Plan says %v", err)
					}
					if _, again := l.client.Subscriber().Subscribe(t.Context(), l.queue); again == nil || again.Error() != err.Error() {
						t.Errorf("Subscribe says\n%v\nPlan says\n%v", again, err)
					}
					if _, err := l.raw.QueueDeclarePassive(l.queue+".dlq", true, false, false, false, nil); err == nil {
						t.Error("the DLQ was created")
					}
				})
			}
		}
	}
}

// A queue with a single active consumer is accepted, with any other arguments. A queue that redeliver creates has a
// single active consumer.
func TestAQueueWithASingleActiveConsumerIsAccepted(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		for kind, args := range map[string]amqp091.Table{
			"created": nil,
			"quorum":  {amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, amqp091.SingleActiveConsumerArg: true, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "it's \"theirs\"", "x-delivery-limit": int32(1000)},
			"classic": {amqp091.SingleActiveConsumerArg: true, "x-max-length": int32(100), "x-max-priority": int32(3), "x-expires": int32(600_000)},
		} {
			t.Run(fmt.Sprintf("%s on %s", kind, version), func(t *testing.T) {
				t.Parallel()
				l := newFixture(t, r, func(l *fixture) {
					l.cfg.Policy = redeliver.Policy{Order: redeliver.OrderBlocking}
					if args != nil {
						l.declareQueue(args)
					}
				})
				for range 2 { // the second time it exists
					plan, err := l.client.Plan(t.Context(), l.queue)
					if err != nil {
						t.Fatal(err)
					}
					if has(plan.NotChecked, "single active consumer") {
						t.Errorf("not checked: %q", plan.NotChecked)
					}
					l.declared()
					l.open()
				}
				if args != nil {
					return
				}
				l.cfg.Policy.Order = redeliver.OrderFirstAttempts
				l.cfg.ManagementURL = r.Management()
				p := &plannedQueue{queue: l.queue, config: l.cfg}
				p.eventually(t, l.queue+" has a single active consumer")
			})
		}
	}
}

package amqp_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
)

// A queue is deleted, and its owner declares it again as it would be refused at the start. It is not read until it is
// declared properly. A OrderThroughRetries queue without a single active consumer once lost its order, and a pause of an auto-delete
// queue deleted its messages.
func TestAQueueThatIsDeclaredAgainIsCheckedAgain(t *testing.T) {
	t.Parallel()
	quorum := amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}
	single := amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, amqp091.SingleActiveConsumerArg: true}
	for name, c := range map[string]struct {
		order      redeliver.Order
		args, then amqp091.Table
		autoDelete bool
		problem    string
	}{
		"without a single active consumer": {redeliver.OrderThroughRetries, single, quorum, false, "without a single active consumer"},
		"auto-delete":                      {redeliver.OrderNone, quorum, nil, true, "auto-delete"},
		"a delivery limit":                 {redeliver.OrderNone, quorum, amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, "x-delivery-limit": int32(1)}, false, "delivery-limit=1 by argument"},
		"a stream":                         {redeliver.OrderNone, quorum, amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeStream}, false, "must be a quorum or a classic queue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := native(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
				l.cfg.Topology, l.cfg.Policy.Order = amqp.ExistingQueue(), c.order
				l.cfg.Key = func(amqp091.Delivery) string { return "one" }
				l.declareQueue(c.args)
			})
			l.runConsume(func(context.Context, amqp091.Delivery) error { return nil })
			l.awaitChange("consuming", 1)
			l.delete("")
			l.awaitChange("disconnected", 1)
			waitFor(time.Second) // RabbitMQ 3.10 confuses consumers of a queue that is declared again at once
			if _, err := l.raw.QueueDeclare(l.queue, true, c.autoDelete, false, false, c.then); err != nil {
				t.Fatal(err)
			}
			l.write(l.queue, amqp091.Publishing{MessageId: "refused", DeliveryMode: amqp091.Persistent})
			l.await("report", func() bool {
				return slices.ContainsFunc(l.events, func(e redeliver.Event) bool {
					change, ok := e.(redeliver.SubscriptionChanged)
					return ok && change.Change == redeliver.ChangeTopicUnfit && strings.Contains(fmt.Sprint(change.Err), c.problem)
				})
			})
			if q, err := l.raw.QueueDeclarePassive(l.queue, true, false, false, false, nil); err != nil || q.Consumers > 0 {
				t.Errorf("it has %d consumers: %v", q.Consumers, err)
			}
			l.delete("")
			waitFor(time.Second)
			l.declareQueue(c.args)
			l.awaitChange("consuming", 2)
			l.write(l.queue, amqp091.Publishing{MessageId: "after", DeliveryMode: amqp091.Persistent})
			l.awaitEnds([]string{"after"})
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.done["refused"] > 0 {
				t.Error("a message of the refused queue ran")
			}
		})
	}
}

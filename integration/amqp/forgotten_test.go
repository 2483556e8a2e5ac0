//go:build prove

package amqp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// A program deletes a quorum queue and declares it again at once. RabbitMQ 3.10 then sends nothing to the queue's consumers,
// and does not cancel them: the messages counted as unacked until the service was restarted. The service reports that.
func TestAQueueThatIsDeclaredAgainAtOnceIsRead(t *testing.T) {
	t.Parallel()
	for _, order := range []redeliver.Order{redeliver.OrderNone, redeliver.OrderThroughRetries} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
				l.cfg.Policy.Order = order
				l.cfg.Key = func(amqp091.Delivery) string { return "one" }
			})
			args := amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}
			if order == redeliver.OrderThroughRetries {
				args[amqp091.SingleActiveConsumerArg] = true
			}
			l.consume(func(*message.Message, run) error { return nil })
			l.awaitChange("consuming", 1)
			l.publishMessages("before")
			l.awaitEnds([]string{"before"})
			waitFor(time.Second) // it is acked
			if _, err := l.raw.QueueDelete(l.queue, false, false, false); err != nil {
				t.Fatal(err)
			}
			if _, err := l.raw.QueueDeclare(l.queue, true, false, false, false, args); err != nil {
				t.Fatal(err)
			}
			var all []string
			for i := range 20 {
				all = append(all, fmt.Sprintf("after-%02d", i))
			}
			l.publishMessages(all...)
			l.awaitEnds(all)
			l.mu.Lock()
			defer l.mu.Unlock()
			if !slices.ContainsFunc(l.events, func(e redeliver.Event) bool {
				change, ok := e.(redeliver.SubscriptionChanged)
				text := fmt.Sprint(change.Err) // a broker that is slow to declare it cancels the consumer after all
				return ok && change.Change == redeliver.ChangeDisconnected && (strings.Contains(text, "declared again at once") || strings.Contains(text, "cancelled the consumer"))
			}) {
				t.Errorf("it is not reported: %v", l.changesLocked())
			}
			for _, id := range all {
				if l.done[id] != 1 {
					t.Errorf("%s ran %d times", id, l.done[id])
				}
			}
		})
	}
}

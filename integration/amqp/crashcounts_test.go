//go:build prove

package amqp_test

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// crashesHeader is how often a message has killed its process.
const crashesHeader = "redeliver-amqp-crashes"

// A suspect that has its turn does not change the crash counts of suspects of other keys. It once removed them, and
// those suspects killed processes forever. In an order with one line for all messages the others are settled, so their
// counts are removed.
func TestTheCrashCountsOfOtherSuspectsStay(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		for order, want := range map[redeliver.Order]int{redeliver.OrderThroughRetries: 1, redeliver.OrderBlocking: 0} {
			t.Run(fmt.Sprintf("%s on %s", order, version), func(t *testing.T) {
				t.Parallel()
				l := newFixture(t, r, func(l *fixture) { l.cfg.Policy.Order, l.cfg.Key = order, lastDigit })
				l.declared()
				place := l.queue + ".retry.place"
				note := amqp091.Publishing{Body: []byte("killer-1"), DeliveryMode: amqp091.Persistent, Headers: amqp091.Table{crashesHeader: int32(2)}}
				if err := l.raw.Publish("", place, true, false, note); err != nil {
					t.Fatal(err)
				}
				l.awaitReady(place, 1)
				l.publishMessages("m-3", "m-4")
				l.makeSuspects()
				l.consume(func(*message.Message, run) error { return nil })
				l.awaitEnds([]string{"m-3", "m-4"})
				if err := l.client.Close(t.Context()); err != nil { // until then it reads the counts
					t.Fatal(err)
				}
				l.awaitReady(place, want)
				if want == 0 {
					return
				}
				if d := l.getMessage(place); string(d.Body) != "killer-1" || d.Headers[crashesHeader] != int32(2) {
					t.Errorf("the crash count is %q, %v", d.Body, d.Headers)
				}
			})
		}
	}
}

// The queue of crash counts is deleted before a suspect's first turn, and while it waits for another one. It is
// declared again, and everything continues.
func TestTheQueueOfCrashCountsIsDeleted(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := newFixture(t, r, func(l *fixture) { l.cfg.Policy.Order = redeliver.OrderBlocking })
			l.declared()
			place := l.queue + ".retry.place"
			l.publishMessages("m", "behind")
			l.makeSuspects()
			if _, err := l.raw.QueueDelete(place, false, false, false); err != nil {
				t.Fatal(err)
			}
			l.consume(func(msg *message.Message, r run) error {
				if r.attempt > 1 || msg.UUID == "behind" {
					return nil
				}
				if _, err := l.raw.QueueDelete(place, false, false, false); err != nil {
					t.Error(err)
				}
				return errHandler
			})
			l.awaitEnds([]string{"m", "behind"})
			l.awaitReady(place, 0)
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.dead) > 0 || l.countLocked("suspect not marked") > 0 {
				t.Errorf("dead letters %v, changes %q", l.deadIDsLocked(), l.changesLocked())
			}
		})
	}
}

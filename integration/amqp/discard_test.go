package amqp_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
)

// With Discard there is no DLQ, and no redeliver queue dead-letters to one. A message that is not retried is reported
// and acked.
func TestDiscardCreatesNoDLQ(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := newFixture(t, b, func(l *fixture) {
				l.cfg.Policy, l.cfg.DLQ = steps(1, 100*time.Millisecond), deadletter.Config{Discard: true}
				l.cfg.ManagementURL = b.Management()
			})
			l.consume(func(*message.Message, run) error { return errHandler })
			l.publishMessages("a", "b")
			var discarded []redeliver.Discarded
			l.await("two messages discarded", func() bool {
				discarded = nil
				for _, e := range l.events {
					if d, ok := e.(redeliver.Discarded); ok {
						discarded = append(discarded, d)
					}
				}
				return len(discarded) >= 2
			})
			for _, d := range discarded {
				if d.State.Reason != redeliver.ReasonExhausted || d.State.Attempts != 2 {
					t.Errorf("discarded: %+v", d)
				}
			}
			if l.mu.Lock(); len(l.dead) > 0 {
				t.Errorf("dead-lettered: %v", l.deadIDsLocked())
			}
			l.mu.Unlock()
			p, err := l.client.Plan(t.Context(), l.queue)
			if err != nil || len(p.OperatorPlaces) > 0 || !slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, "there is no DLQ") }) {
				t.Fatalf("the plan is %+v, %v", p, err)
			}
			for _, q := range p.Places {
				if q.Name == l.queue+".dlq" || q.Settings["x-dead-letter-routing-key"] == l.queue+".dlq" {
					t.Errorf("the plan has %+v", q)
				}
			}
			if names := newAdmin(t, b).queues(t, l.queue); slices.Contains(names, l.queue+".dlq") || !slices.Contains(names, l.queue+".retry") {
				t.Errorf("the queues %v exist", names)
			}
		})
	}
}

package amqp

import (
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
	"github.com/redeliver/redeliver/deadletter"
)

// A DLQ may have any retention, by an argument or by a policy.
func TestDLQMayHaveAnyRetention(t *testing.T) {
	cfg := Config{URLs: []string{"amqp://localhost/"}, DLQ: deadletter.Config{Retention: 96 * time.Hour}}.withDefaults()
	l, err := newLayout(&cfg, "orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range l.Queues {
		ttl, has := q.Args[amqp091.QueueMessageTTLArg]
		if q.Kind == layout.DeadQueue && ttl != (96*time.Hour).Milliseconds() || q.Kind != layout.DeadQueue && q.Kind != layout.DelayQueue && has {
			t.Errorf("%s has the TTL %v", q.Name, ttl)
		}
		why := forbiddenReason(q, management.Setting{Key: "message-ttl", Value: 1, By: "a policy"})
		if allowed := why == ""; allowed != (q.Kind == layout.DeadQueue) {
			t.Errorf("a policy's TTL on %s: %q", q.Name, why)
		}
	}
	cfg.DLQ.Retention = time.Second
	if cfg.validate() == nil {
		t.Error("a retention of a second is not refused")
	}
}

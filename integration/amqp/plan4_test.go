//go:build prove

package amqp_test

import (
	"testing"

	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

// RabbitMQ 4 gives every quorum queue a delivery limit of 20 and drops messages that exceed it.
func TestPlanOnRabbitMQ4(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ4(t).VirtualHost(t)
	p := newPlannedQueue(t, r, "orders")
	p.declareQueue(t, "orders", fields{"x-queue-type": "quorum"})
	p.eventually(t, "orders has delivery-limit=20 by RabbitMQ 4's default and drops messages that come back more often")
	p.policy(t, "ours", "^orders$", fields{"dead-letter-exchange": "", "dead-letter-routing-key": "orders.dlq"})
	p.eventually(t, "orders has delivery-limit=20 by RabbitMQ 4's default: messages that come back more often")
	p.declareQueue(t, "payments", fields{"x-queue-type": "quorum", "x-delivery-limit": -1})
	p.queue = "payments"
	plan := p.until(t, "its queue is counted", func(plan *mq.Plan) bool { return plan.Places[0].Messages == 0 })
	if has(plan.Notes, "payments has delivery-limit") {
		t.Error(plan)
	}
	p.config.Topology = amqp.PubSub("billing")
	p.declare(t)
	p.policy(t, "all", ".*", fields{"dead-letter-exchange": "amq.fanout", "dead-letter-routing-key": "elsewhere"})
	p.publish(t, "payments_billing.retry.1s")
	p.arrives(t, "payments_billing.retry")
	p.delete(t, "policies", p.r.VHost(), "all")
	t.Run("knows rights", func(t *testing.T) { planReportsRights(t, r) })
	t.Run("checks the right to read first", func(t *testing.T) { subscribeNeedsTheRightToRead(t, r) })
	t.Run("checks the right to read all queues first", func(t *testing.T) { consumeNeedsTheRightToRead(t, r) })
	t.Run("plans enough rights", func(t *testing.T) { plannedRightsSuffice(t, r) })
	t.Run("knows types", func(t *testing.T) { planReportsTypes(t, r) })
}

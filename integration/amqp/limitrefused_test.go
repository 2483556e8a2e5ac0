package amqp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
)

// A delivery limit at which the broker would drop messages is refused at the start, even without the management API:
// ordered messages are never rewritten, and others only after five returns.
func TestALowDeliveryLimitIsRefused(t *testing.T) {
	t.Parallel()
	const drops = "drops a message that comes back more often, because the queue has no dead-letter exchange"
	dead := func(args amqp091.Table) amqp091.Table {
		args["x-dead-letter-exchange"] = "amq.fanout"
		return args
	}
	ordered := func(limit any) amqp091.Table {
		args := amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, amqp091.SingleActiveConsumerArg: true}
		if limit != nil {
			args["x-delivery-limit"] = limit
		}
		return args
	}
	type row struct {
		order redeliver.Order
		args  amqp091.Table
		want  string // "" if it is accepted
	}
	for version, r := range brokers.RequireRabbitMQs(t) {
		rows := map[string]row{
			"ordered, 50":                       {redeliver.OrderBlocking, ordered(int32(50)), "is delivery-limit=50 by argument: " + drops},
			"ordered, 50, dead-lettered":        {redeliver.OrderBlocking, dead(ordered(int32(50))), ""},
			"ordered, 1,000,000":                {redeliver.OrderBlocking, ordered(int32(1_000_000)), ""},
			"ordered by key, 20":                {redeliver.OrderThroughRetries, ordered(int32(20)), "is delivery-limit=20 by argument: " + drops},
			"unordered, 20":                     {redeliver.OrderFirstAttempts, limited(version), ""},
			"unordered, 9":                      {redeliver.OrderFirstAttempts, amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, "x-delivery-limit": int32(9)}, "is delivery-limit=9 by argument: " + drops},
			"unordered, 3, dead-lettered":       {redeliver.OrderFirstAttempts, dead(amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, "x-delivery-limit": int32(3)}), ""},
			"ordered, a classic queue":          {redeliver.OrderBlocking, amqp091.Table{amqp091.SingleActiveConsumerArg: true}, ""},
			"ordered, the default of RabbitMQ":  {redeliver.OrderBlocking, ordered(nil), map[string]string{"4.0": "is delivery-limit=20 by RabbitMQ 4's default: " + drops}[version]},
			"ordered, priorities and a timeout": {redeliver.OrderBlocking, amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, amqp091.SingleActiveConsumerArg: true, "x-delivery-limit": int32(20), "x-expires": int32(600_000), "x-max-length": int32(100)}, "is delivery-limit=20 by argument: " + drops},
		}
		if version == "4.0" {
			rows["ordered, unlimited"] = row{redeliver.OrderBlocking, ordered(int32(-1)), ""}
		}
		for name, row := range rows {
			for _, asked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s on %s, management API %t", name, version, asked), func(t *testing.T) {
					t.Parallel()
					l := newFixture(t, r, func(l *fixture) {
						l.cfg.Policy, l.cfg.Key = redeliver.Policy{Order: row.order}, amqp.KeyHeader(keyHeader)
						l.declareQueue(row.args)
						if asked {
							l.cfg.ManagementURL = r.Management()
						}
					})
					_, err := l.client.Plan(t.Context(), l.queue)
					_, again := l.client.Subscriber().Subscribe(t.Context(), l.queue)
					if row.want == "" {
						if err != nil || again != nil {
							t.Fatalf("Plan returns %v, Subscribe returns %v", err, again)
						}
						return
					}
					if refused, ok := errors.AsType[*redeliver.ConfigError](err); !ok || !strings.Contains(refused.Error(), "queue "+l.queue+" "+row.want) {
						t.Fatalf("Plan returns %v, want %q", err, row.want)
					}
					if again == nil || again.Error() != err.Error() {
						t.Errorf("Subscribe says\n%v\nPlan says\n%v", again, err)
					}
				})
			}
		}
	}
}

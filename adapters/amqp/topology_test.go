package amqp

import (
	"slices"
	"testing"
)

// The topologies equal watermill-amqp's; integration/amqp/pika compares them on a broker.
func TestTopologiesMatchWatermill(t *testing.T) {
	type way struct{ queue, exchange, kind, key, binding string }
	for name, row := range map[string]struct {
		topology Topology
		want     way
	}{
		"zero":     {Topology{}, way{"orders", "", "fanout", "orders", "orders"}},
		"queue":    {Queue(), way{"orders", "", "fanout", "orders", "orders"}},
		"existing": {ExistingQueue(), way{"orders", "", "fanout", "orders", "orders"}},
		"pubsub":   {PubSub("billing"), way{"orders_billing", "orders", "fanout", "", ""}},
		"topic":    {TopicExchange("events", "billing"), way{"billing", "events", "topic", "orders", "orders"}},
		"direct":   {DirectExchange("events", "billing"), way{"billing", "events", "direct", "orders", "orders"}},
		"own queue, default exchange": {Topology{Queue: func(t string) string { return "q-" + t }},
			way{"q-orders", "", "fanout", "q-orders", "q-orders"}},
		"own keys": {Topology{
			Exchange: func(string) string { return "events" }, Kind: "topic", RoutingKey: func(t string) string { return "eu." + t },
			BindingKeys: func(t string) []string { return []string{"*." + t} },
		}, way{"orders", "events", "topic", "eu.orders", "*.orders"}},
	} {
		t.Run(name, func(t *testing.T) {
			top := row.topology
			keys := top.bindingKeys("orders")
			got := way{top.queue("orders"), top.exchange("orders"), top.kind(), top.routingKey("orders"), slices.Concat(keys, []string{""})[0]}
			if got != row.want || len(keys) != 1 {
				t.Errorf("%+v with keys %q, want %+v", got, keys, row.want)
			}
		})
	}
	if !ExistingQueue().Existing || Queue().Existing {
		t.Error("a fixed topology creates its queue")
	}
}

package amqp

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
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

func TestCustomNamesAreChecked(t *testing.T) {
	fixed := func(name string) func(string) string { return func(string) string { return name } }
	for name, row := range map[string]struct {
		names Names
		field string // the field with a problem
	}{
		"defaults":        {Names{}, ""},
		"good":            {Names{Retry: fixed("back"), DLQ: fixed("dead")}, ""},
		"retry is queue":  {Names{Retry: fixed("orders")}, `Names.Retry("orders")`},
		"retry empty":     {Names{Retry: fixed("")}, `Names.Retry("orders")`},
		"retry too long":  {Names{Retry: fixed(strings.Repeat("r", 250))}, `Names.Retry("orders")`},
		"retry reserved":  {Names{Retry: fixed("amq.retry")}, `Names.Retry("orders")`},
		"dlq is queue":    {Names{DLQ: fixed("orders")}, `Names.DLQ("orders")`},
		"dlq is retry":    {Names{DLQ: fixed("orders.retry")}, `Names.DLQ("orders")`},
		"dlq is suspects": {Names{DLQ: fixed("orders.retry.suspects")}, `Names.DLQ("orders")`},
		"dlq no text":     {Names{DLQ: fixed("\xff")}, `Names.DLQ("orders")`},
		"dlq too long":    {Names{DLQ: fixed(strings.Repeat("d", 256))}, `Names.DLQ("orders")`},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{URLs: []string{"amqp://localhost"}, Names: row.names}.withDefaults()
			_, err := newLayout(&cfg, "orders")
			bad, _ := errors.AsType[*redeliver.ConfigError](err)
			switch {
			case row.field == "" && err != nil, row.field != "" && (bad == nil || len(bad.Problems) != 1 || bad.Problems[0].Field != row.field):
				t.Errorf("%v, want a problem with %q", err, row.field)
			}
		})
	}
}

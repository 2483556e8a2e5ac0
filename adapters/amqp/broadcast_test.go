package amqp

import (
	"maps"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
)

// What cannot work is refused before anything is dialled, all of it at once.
func TestABadBroadcastConfigIsRefused(t *testing.T) {
	_, err := OpenBroadcast(t.Context(), BroadcastConfig{
		URLs: []string{"nowhere"}, MaxInFlight: -1, DrainTimeout: -1, DialTimeout: -1, AMQP: amqp.Config{Recovery: &amqp.Recovery{}},
		Policy:   redeliver.Policy{MaxRetries: 3, Order: redeliver.Blocking, Levels: []time.Duration{time.Second}},
		Topology: Topology{Kind: "odd", Queue: func(string) string { return "q" }},
	})
	got := slices.Sorted(maps.Keys(problemsOf(t, err)))
	want := []string{
		"AMQP.Recovery", "DialTimeout", "DrainTimeout", "MaxInFlight", "Policy.Levels", "Policy.MaxRetries", "Policy.Order", "Topology.Kind", "Topology.Queue", "URLs[0]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("refused %q, want %q", got, want)
	}
	if _, err := OpenBroadcast(t.Context(), BroadcastConfig{}); len(problemsOf(t, err)) != 1 {
		t.Errorf("nothing but URLs is required: %v", err)
	}
}

// Without a topology a topic is a fanout exchange of its name.
func TestTheTopologyOfABroadcast(t *testing.T) {
	zero := BroadcastConfig{}.withDefaults().Topology
	if zero.exchange("prices") != "prices" || zero.kind() != "fanout" || zero.Existing {
		t.Errorf("%+v", zero)
	}
	own := BroadcastConfig{Topology: TopicExchange("events", "")}
	own.Topology.Queue = nil
	own.Topology.BindingKeys = func(string) []string { return []string{"price.#"} }
	if top := own.withDefaults().Topology; top.exchange("prices") != "events" || top.kind() != "topic" || top.bindingKeys("prices")[0] != "price.#" {
		t.Errorf("%+v", top)
	}
}

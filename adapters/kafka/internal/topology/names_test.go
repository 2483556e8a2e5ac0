package topology

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/check"
)

func TestNamesThatMixUpTopicsAreRefused(t *testing.T) {
	is := func(name string) func(string, string) string { return func(string, string) string { return name } }
	for want, n := range map[string]Names{
		"": {Retry: is("a"), DLQ: is("b")},
		`Names.Retry("orders", "billing") is orders: must be neither the topic itself`:                                        {Retry: is("orders")},
		`Names.DLQ("orders", "billing") is a: must be neither the topic itself, nor the name of another topic of redeliver's`: {Retry: is("a"), DLQ: is("a")},
		`Names.DLQ("orders", "billing") is a.10s: must be neither`:                                                            {Retry: is("a"), DLQ: is("a.10s")},
		`Names.DLQ("orders", "billing") is "a b": must be letters`:                                                            {DLQ: is("a b")},
		`Names.DLQ("orders", "billing") is "": must be the name of a topic`:                                                   {DLQ: is("")},
		`Names.Retry("orders", "billing") is 240: must be at most 223 bytes long`:                                             {Retry: is(strings.Repeat("a", 240))},
	} {
		var ps check.Problems
		n.Check(&ps, "orders", "billing")
		if got := fmt.Sprint(ps.Err()); (ps.Err() == nil) != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// Only the DLQ may have another reader. Two subscriptions with one retry topic would run each other's messages.
func TestPlacesOfALayout(t *testing.T) {
	l := &Layout{
		Origin: "orders", State: Topic{Name: "dead.state"}, Control: Topic{Name: "control"},
		Topics: []Topic{{Name: "retry", Kind: Retry}, {Name: "dead", Kind: DLQ}},
	}
	if got, want := fmt.Sprint(l.Places()), "{orders  dead [control retry dead.state]}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzLevelOfTopic parses arbitrary names of topics. If one is a delay topic, its level must make the same name.
func FuzzLevelOfTopic(f *testing.F) {
	f.Add("orders.billing.retry.10s", "orders", "billing")
	f.Add("orders.billing.retry.90s", "orders", "billing")
	f.Add("orders.a_2eb.retry.1m30s", "orders", "a.b")
	f.Add("orders.billing.retry.", "orders", "billing")
	f.Fuzz(func(t *testing.T, name, topic, group string) {
		level, ok := Names{}.Level(topic, group, name)
		if ok && (level <= 0 || Names{}.DelayTopic(topic, group, level) != name) {
			t.Errorf("%q was read as level %s of %q and %q, whose name is %q", name, delayqueue.LevelName(level), topic, group, Names{}.DelayTopic(topic, group, level))
		}
	})
}

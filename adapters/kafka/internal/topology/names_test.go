package topology

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

func TestNamesThatMixUpTopicsAreRefused(t *testing.T) {
	is := func(name string) func(string, string) string { return func(string, string) string { return name } }
	for want, n := range map[string]Names{
		"": {Retry: is("a"), DLQ: is("b")},
		`Names.Retry("orders", "billing") is orders: must not be the topic itself`:                                            {Retry: is("orders")},
		`Names.DLQ("orders", "billing") is a: must be neither the topic itself, nor the name of another topic of redeliver's`: {Retry: is("a"), DLQ: is("a")},
		`Names.DLQ("orders", "billing") is a.10s: must be neither`:                                                            {Retry: is("a"), DLQ: is("a.10s")},
		`Names.DLQ("orders", "billing") is "a b": must be letters`:                                                            {DLQ: is("a b")},
		`Names.DLQ("orders", "billing") is "": must be the name of a topic`:                                                   {DLQ: is("")},
		`Names.Retry("orders", "billing") is 240: must be at most 223 bytes long`:                                             {Retry: is(strings.Repeat("a", 240))},
	} {
		var ps redeliver.Problems
		n.Check(&ps, "orders", "billing")
		if got := fmt.Sprint(ps.Err()); (ps.Err() == nil) != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// Two subscriptions with one retry topic would run each other's messages.
func TestNamesSharedByTwoTopicsAreRefused(t *testing.T) {
	one := &Layout{Origin: "one", Topics: []Topic{{Name: "retry"}, {Name: "one.dlq"}}}
	two := &Layout{Origin: "two", Topics: []Topic{{Name: "retry"}, {Name: "two.dlq"}}}
	var ps redeliver.Problems
	two.CheckShared(&ps, two)
	if err := ps.Err(); err != nil {
		t.Errorf("a subscription that is opened twice: %v", err)
	}
	two.CheckShared(&ps, one)
	if got := fmt.Sprint(ps.Err()); !strings.Contains(got, "Names is retry: must differ for every topic: one and two would share it") || len(ps) != 1 {
		t.Errorf("got %s", got)
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

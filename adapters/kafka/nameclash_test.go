package kafka

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
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
		n.check(&ps, "orders", "billing")
		if got := fmt.Sprint(ps.Err()); (ps.Err() == nil) != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// Two subscriptions with one way back would run each other's messages.
func TestNamesSharedByTwoTopicsAreRefused(t *testing.T) {
	one := &layout{origin: "one", topics: []ownTopic{{name: "retry"}, {name: "one.dlq"}}}
	two := &layout{origin: "two", topics: []ownTopic{{name: "retry"}, {name: "two.dlq"}}}
	var ps redeliver.Problems
	two.checkShared(&ps, two)
	if err := ps.Err(); err != nil {
		t.Errorf("a subscription that is opened twice: %v", err)
	}
	two.checkShared(&ps, one)
	if got := fmt.Sprint(ps.Err()); !strings.Contains(got, "Names is retry: must differ for every topic: one and two would share it") || len(ps) != 1 {
		t.Errorf("got %s", got)
	}
}

//go:build prove

package kafka_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redeliver/redeliver/adapters/kafka"
)

// Each Subscribe is a member of the group. So a process that starts or stops reading one topic rebalances all other
// topics of all processes.
func TestExpectedFailureEachTopicOfAProcessIsAMember(t *testing.T) {
	t.Parallel()
	topics := []string{"orders", "refunds", "returns"}
	p := fixture{addrs: fake(t, topics...).ListenAddrs(), group: "billing"}
	c, ev := open(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1)})
	for _, topic := range topics {
		route(t, c, topic, func(*message.Message) error { return nil })
	}
	put(t, p.addrs, order("orders", "a"), order("refunds", "b"), order("returns", "c"))
	ev.awaitEnds(t, "a", "b", "c")
	if n := membersOf(t, p)(); n != 1 {
		t.Errorf("the group has %d members, want 1", n)
	}
}

// membersOf returns a function that asks for the number of members of a group.
func membersOf(t *testing.T, p fixture) func() int {
	t.Helper()
	adm := kadm.NewClient(independent(t, p.addrs))
	return func() int {
		groups, err := adm.DescribeGroups(t.Context(), p.group)
		if err != nil {
			t.Fatal(err)
		}
		return len(groups[p.group].Members)
	}
}

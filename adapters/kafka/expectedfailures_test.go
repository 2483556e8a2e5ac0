//go:build prove

package kafka_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// failureWait is how long a test waits for an event that the fault prevents.
const failureWait = 15 * time.Second

// holdsWithin reports whether ok holds within failureWait.
func holdsWithin(ok func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(failureWait)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			return false
		}
	}
	return true
}

// With PerKey no partition of an origin is read while the origin has more partitions than the levels.
func TestExpectedFailurePerKeyANewPartitionStopsAllPartitions(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	cfg := withLongTimeouts(nil)
	cfg.Metadata.RefreshFrequency = 100 * time.Millisecond
	c, ev := open(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: perKeyPolicy(100 * time.Millisecond), Sarama: cfg})
	route(t, c, p.topic, func(*message.Message) error { return nil })
	ev.awaitJoined(t, 1)
	addPartitions(t, p, 5)
	ev.await(t, 2, is[redeliver.SubscriptionChanged]) // it has noticed
	ids := putOnPartitions(t, p, "a-", 4)
	if !holdsWithin(func() bool { return len(ev.attempts()) == len(ids) }) {
		t.Errorf("%d of %d messages on the partitions that have levels ran within %s", len(ev.attempts()), len(ids), failureWait)
	}
}

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

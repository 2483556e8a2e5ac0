package perkey

import (
	"fmt"
	"slices"
	"testing"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/internal/kafkaname"
)

// ownersIn returns the owner of each partition by topic. It checks that there is only one, and that it reads the topic.
func ownersIn(t *testing.T, plan sarama.BalanceStrategyPlan, members map[string]sarama.ConsumerGroupMemberMetadata) map[string]map[int32]string {
	t.Helper()
	owner := make(map[string]map[int32]string)
	for id, topics := range plan {
		for topic, partitions := range topics {
			if !slices.Contains(members[id].Topics, topic) {
				t.Errorf("%s has partitions of %s and does not read it", id, topic)
			}
			if owner[topic] == nil {
				owner[topic] = make(map[int32]string)
			}
			for _, p := range partitions {
				if by := owner[topic][p]; by != "" {
					t.Errorf("%s/%d has two owners, %s and %s", topic, p, by, id)
				}
				owner[topic][p] = id
			}
		}
	}
	return owner
}

// The member that owns an origin partition owns the same partition of the retry and delay topics, even if the members
// know different levels. No partition is assigned twice, and none is left out if a member may have it.
func TestAPartitionAndItsLevelsHaveOneOwner(t *testing.T) {
	strategy := BalanceStrategy{
		Group: "billing", RetryTopic: func(topic, group string) string { return kafkaname.Base(topic, group) + ".retry" },
		IsPerKey: func(topic string) bool { return topic == "orders" },
	}
	topics := map[string][]int32{"orders": {0, 1, 2, 3, 4}, "refunds": {0, 1, 2}, "refunds.billing.retry": {0, 1}}
	retry := strategy.RetryTopic("orders", "billing")
	behind := []string{retry, retry + ".1s", retry + ".5s", retry + ".1m"}
	for _, topic := range behind {
		topics[topic] = []int32{0, 1, 2, 3, 4}
	}
	for members := 1; members <= 7; members++ {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			all := make(map[string]sarama.ConsumerGroupMemberMetadata)
			for i := range members {
				read := append([]string{"orders"}, behind...)
				if i%3 == 1 { // a member with another policy, which does not know the last level
					read = read[:len(read)-1]
				}
				all[fmt.Sprint("member-", i)] = sarama.ConsumerGroupMemberMetadata{Topics: read}
			}
			all["other"] = sarama.ConsumerGroupMemberMetadata{Topics: []string{"refunds", "refunds.billing.retry"}}
			plan, err := strategy.Plan(all, topics)
			if err != nil {
				t.Fatal(err)
			}
			owner := ownersIn(t, plan, all)
			for topic, n := range map[string]int{"orders": 5, "refunds": 3, "refunds.billing.retry": 2} {
				if len(owner[topic]) != n {
					t.Errorf("of %s, %v have an owner", topic, owner[topic])
				}
			}
			maxOwned, minOwned := 0, 5
			for i := range members {
				n := len(plan[fmt.Sprint("member-", i)]["orders"])
				maxOwned, minOwned = max(maxOwned, n), min(minOwned, n)
			}
			if maxOwned-minOwned > 1 {
				t.Errorf("one member has %d partitions and another %d", maxOwned, minOwned)
			}
			for _, topic := range behind {
				for p := range int32(5) {
					want := owner["orders"][p]
					if !slices.Contains(all[want].Topics, topic) {
						want = "" // it will find the level later
					}
					if got := owner[topic][p]; got != want {
						t.Errorf("%s/%d is %q's, and its origin %q's", topic, p, got, owner["orders"][p])
					}
				}
			}
		})
	}
}

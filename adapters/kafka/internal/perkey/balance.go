package perkey

import (
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/internal/kafkaname"
)

// StrategyName is the name of [BalanceStrategy].
const StrategyName = "redeliver-copartitioned"

// BalanceStrategy is the balance strategy of groups with OrderThroughRetries. The owner of a partition of the origin also
// gets that partition of all topics on which the origin's messages wait. sarama's strategies do not, if members know
// different levels. This one is eager: a partition and its levels move at the same moment.
type BalanceStrategy struct {
	Group      string
	RetryTopic func(topic, group string) string
	IsPerKey   func(topic string) bool // whether the policy of a topic has OrderThroughRetries
}

// Name implements [sarama.BalanceStrategy].
func (BalanceStrategy) Name() string { return StrategyName }

// AssignmentData implements [sarama.BalanceStrategy].
func (BalanceStrategy) AssignmentData(string, map[string][]int32, int32) ([]byte, error) {
	return nil, nil
}

// Plan implements [sarama.BalanceStrategy]. It assigns origins in ranges. A partition of a level goes to the owner of
// the origin's partition. If that member does not read the level yet, nobody gets it: the member will find the level
// when its session begins, and join again.
func (s BalanceStrategy) Plan(members map[string]sarama.ConsumerGroupMemberMetadata, topics map[string][]int32) (sarama.BalanceStrategyPlan, error) {
	plan := make(sarama.BalanceStrategyPlan, len(members))
	readers := make(map[string][]string)
	for _, id := range slices.Sorted(maps.Keys(members)) {
		for _, topic := range members[id].Topics {
			readers[topic] = append(readers[topic], id)
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		origin := s.origin(topic, topics)
		originPartitions := slices.Sorted(slices.Values(topics[origin]))
		for _, p := range topics[topic] {
			owners := readers[origin]
			i, ok := slices.BinarySearch(originPartitions, p)
			if !ok || len(owners) == 0 {
				continue // it is refused when the session begins
			}
			owner := owners[i*len(owners)/len(originPartitions)]
			if slices.Contains(readers[topic], owner) {
				plan.Add(owner, topic, p)
			}
		}
	}
	return plan, nil
}

// origin returns the origin whose messages wait on a topic, or the topic itself.
func (s BalanceStrategy) origin(topic string, topics map[string][]int32) string {
	for origin := range topics {
		if origin == topic || !s.IsPerKey(origin) {
			continue
		}
		if _, waits := kafkaname.Level(s.RetryTopic(origin, s.Group), topic); waits {
			return origin
		}
	}
	return topic
}

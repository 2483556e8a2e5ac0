package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/perkey"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wait"
)

// copartitioned is the balance strategy of groups with the order PerKey. The owner of a partition of the origin also
// gets that partition of all topics on which the origin's messages wait. sarama's strategies do not, if members know
// different levels. This one is eager: a partition and its levels move at the same moment.
type copartitioned struct{ cfg *Config }

// Name implements [sarama.BalanceStrategy].
func (copartitioned) Name() string { return "redeliver-copartitioned" }

// AssignmentData implements [sarama.BalanceStrategy].
func (copartitioned) AssignmentData(string, map[string][]int32, int32) ([]byte, error) {
	return nil, nil
}

// Plan implements [sarama.BalanceStrategy]. It assigns origins in ranges. A partition of a level goes to the owner of
// the origin's partition. If that member does not read the level yet, nobody gets it: the member will find the level
// when its session begins, and join again.
func (s copartitioned) Plan(members map[string]sarama.ConsumerGroupMemberMetadata, topics map[string][]int32) (sarama.BalanceStrategyPlan, error) {
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
func (s copartitioned) origin(topic string, topics map[string][]int32) string {
	for origin := range topics {
		if s.cfg.policy(origin).Order != redeliver.PerKey || origin == topic {
			continue
		}
		if _, waits := kafkaname.Level(s.cfg.names().RetryTopic(origin, s.cfg.Group), topic); waits {
			return origin
		}
	}
	return topic
}

// perKey reports whether a policy of the group has the order PerKey. All members of a group must use one strategy.
func (c Config) perKey() bool {
	if c.Policy.Order == redeliver.PerKey {
		return true
	}
	for _, p := range c.Topics {
		if p.Order == redeliver.PerKey {
			return true
		}
	}
	return false
}

// checkPerKey refuses settings that the order PerKey does not allow.
func (c Config) checkPerKey(ps *redeliver.Problems) {
	if !c.perKey() {
		return
	}
	rebalance := c.Sarama.Consumer.Group.Rebalance
	names := make([]string, 0, 1)
	for _, s := range rebalance.GroupStrategies {
		names = append(names, s.Name())
	}
	const rule = "must be left alone where an Order is PerKey: a partition and the levels behind it must have one owner"
	if !slices.Equal(names, []string{sarama.RangeBalanceStrategyName}) { // sarama's default
		ps.Add("Sarama.Consumer.Group.Rebalance.GroupStrategies", names, rule)
	}
	if rebalance.Strategy != nil {
		ps.Add("Sarama.Consumer.Group.Rebalance.Strategy", rebalance.Strategy.Name(), rule)
	}
}

func (r *reader) perKey() bool { return r.layout.Policy.Order == redeliver.PerKey }

// checkCopartitioned checks at the beginning of a session whether the order of keys can be kept. Each topic on which
// messages wait must have as many partitions as the origin, and this member must own the same ones of each.
func (r *reader) checkCopartitioned(sess sarama.ConsumerGroupSession) error {
	topics := slices.Sorted(maps.Keys(r.levels))
	if err := r.keeper.EqualizePartitions(sess.Context(), topics); err != nil || sess.Context().Err() != nil {
		return err
	}
	claims := sess.Claims()
	origin := slices.Sorted(slices.Values(claims[r.layout.Origin]))
	for _, topic := range topics {
		if own := slices.Sorted(slices.Values(claims[topic])); !slices.Equal(own, origin) {
			return fmt.Errorf("kafka: this member of group %s has the partitions %v of %s, but %v of %s: the order PerKey needs another balance strategy; all members of the group must be configured with PerKey",
				r.layout.Group, origin, r.layout.Origin, own, topic)
		}
	}
	return nil
}

// keyQueues returns the queues of a claim's partition when they are loaded, or nil if the session ends before.
func (s *session) keyQueues(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim, from int64) *perkey.Queues {
	r, partition := s.reader, claim.Partition()
	queues := s.keys.Queues(partition)
	// Records that were fetched must not hold up the fetches of other partitions.
	r.group.Pause(map[string][]int32{claim.Topic(): {partition}})
	if claim.Topic() == r.layout.Origin {
		loader := perkey.Loader{Queues: queues, Partition: partition, From: from, MaxWaiting: r.client.cfg.MaxWaiting, Stay: r.readStay}
		if s.loadQueues(sess.Context(), loader) != nil {
			return nil
		}
	}
	if !queues.Await(sess.Context()) {
		return nil
	}
	return queues
}

// loadRetryPause is the pause after a failed load.
const loadRetryPause = time.Second

// loadQueues loads a partition's waiting messages. It tries again until ctx ends, then returns its error.
func (s *session) loadQueues(ctx context.Context, loader perkey.Loader) error {
	for reported := false; ; reported = true {
		err := s.tryLoadQueues(ctx, loader)
		if err == nil {
			return nil
		}
		if !reported && ctx.Err() == nil {
			s.reader.sub.EmitChange(redeliver.ChangeReadingWaiting, fmt.Sprintf("partition %d; nothing of it runs before", loader.Partition), err)
		}
		if err := wait.For(ctx, loadRetryPause); err != nil {
			return err
		}
	}
}

func (s *session) tryLoadQueues(ctx context.Context, loader perkey.Loader) error {
	r := s.reader
	topics := map[string][]int32{r.layout.Origin: {loader.Partition}}
	for topic := range r.levels {
		topics[topic] = []int32{loader.Partition}
	}
	committed, err := r.client.admin.GroupOffsets(r.layout.Group, topics)
	if err != nil {
		return err
	}
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		found, err := metaOf(committed, topic, loader.Partition)
		if err != nil {
			return err
		}
		log := perkey.Log{Reader: topiclog.Reader{Client: r.client.admin.Client, Topic: topic}, Committed: found.offset}
		if topic == r.layout.Origin {
			log.Settled = r.settledBefore(topic, found, loader.From)
			loader.Origin = log
			continue
		}
		log.Settled = r.settledBefore(topic, found, found.offset)
		loader.Levels = append(loader.Levels, log)
	}
	return loader.Load(ctx)
}

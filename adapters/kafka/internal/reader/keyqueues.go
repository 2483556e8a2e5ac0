package reader

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
	"github.com/redeliver/redeliver/internal/wait"
)

// checkCopartitioned checks at the beginning of a session whether the order of keys can be kept. Each topic on which
// messages wait must have as many partitions as the origin, and this member must own the same ones of each.
func (s *Session) checkCopartitioned(sess sarama.ConsumerGroupSession) error {
	r := s.reader
	topics := slices.Sorted(maps.Keys(s.levels))
	if err := r.keeper.EqualizePartitions(sess.Context(), topics); err != nil || sess.Context().Err() != nil {
		return err
	}
	claims := sess.Claims()
	origin := slices.Sorted(slices.Values(claims[r.Layout.Origin]))
	for _, topic := range topics {
		if own := slices.Sorted(slices.Values(claims[topic])); !slices.Equal(own, origin) {
			return fmt.Errorf("kafka: this member of group %s has the partitions %v of %s, but %v of %s: OrderThroughRetries needs another balance strategy; all members of the group must be configured with OrderThroughRetries",
				r.Layout.Group, origin, r.Layout.Origin, own, topic)
		}
	}
	return nil
}

// keyQueues returns the queues of a claim's partition when they are loaded, or nil if the session ends first.
func (s *Session) keyQueues(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim, from int64) *perkey.Queues {
	r, partition := s.reader, claim.Partition()
	queues := s.keys.Queues(partition)
	// Records that were fetched must not hold up the fetches of other partitions.
	r.Group.Pause(map[string][]int32{claim.Topic(): {partition}})
	if claim.Topic() == r.Layout.Origin {
		loader := perkey.Loader{Queues: queues, Partition: partition, From: from, MaxWaiting: r.MaxWaiting, Stay: s.readStay}
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
func (s *Session) loadQueues(ctx context.Context, loader perkey.Loader) error {
	for reported := false; ; reported = true {
		err := s.tryLoadQueues(ctx, loader)
		if err == nil {
			return nil
		}
		if !reported && ctx.Err() == nil {
			s.reader.Sub.EmitChange(redeliver.ChangeReadingWaiting, fmt.Sprintf("partition %d; until they are read, none of its messages run", loader.Partition), err)
		}
		if err := wait.For(ctx, loadRetryPause); err != nil {
			return err
		}
	}
}

func (s *Session) tryLoadQueues(ctx context.Context, loader perkey.Loader) error {
	r := s.reader
	topics := map[string][]int32{r.Layout.Origin: {loader.Partition}}
	for topic := range s.levels {
		topics[topic] = []int32{loader.Partition}
	}
	committed, err := r.admin().GroupOffsets(r.Layout.Group, topics)
	if err != nil {
		return err
	}
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		found, err := metaOf(committed, topic, loader.Partition)
		if err != nil {
			return err
		}
		if s.topicIDs.Differs(topic, found.meta.Topic) {
			found = claimMeta{offset: -1} // the lane reads it from its beginning, see resetRecreated
		}
		from := found.offset
		if topic == r.Layout.Origin {
			from = loader.From
		}
		if found, err = s.believe(ctx, topic, loader.Partition, found, from); err != nil {
			return err
		}
		log := perkey.Log{Reader: topiclog.Reader{Client: r.admin().Client, Topic: topic}, Committed: found.offset, Settled: found.meta.Settled}
		if topic == r.Layout.Origin {
			loader.Origin = log
		} else {
			loader.Levels = append(loader.Levels, log)
		}
	}
	return loader.Load(ctx)
}

package kafka

import (
	"fmt"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
)

// topicIDs are the ids of existing topics, by name. If a topic is deleted and created again, its id changes, and the
// group's offsets do not apply to it. An id is empty before Kafka 2.8, or if Sarama.Version is older.
type topicIDs map[string]string

// topicIDs asks for the ids of topics.
func (a admin) topicIDs(topics ...string) (topicIDs, error) {
	existing, err := a.topics(topics...)
	if err != nil {
		return nil, err
	}
	ids := make(topicIDs, len(existing))
	for name, t := range existing {
		ids[name] = ""
		if t.Uuid != (sarama.Uuid{}) {
			ids[name] = t.Uuid.String()
		}
	}
	return ids, nil
}

// missing returns a claimed topic that does not exist, or "". It was deleted after the group assigned it. Without its id
// the session could not see that the offsets do not apply to the topic that follows.
func (ids topicIDs) missing(claims map[string][]int32) string {
	for topic := range claims {
		if _, exists := ids[topic]; !exists {
			return topic
		}
	}
	return ""
}

// differs reports whether metadata was written for an earlier topic of the same name.
func (ids topicIDs) differs(topic string, n commitMeta) bool {
	return n.topic != "" && ids[topic] != "" && n.topic != ids[topic]
}

// resetRecreated makes the session read partitions from their beginning if their committed offsets belong to an earlier
// topic of the same name. Otherwise new records would be skipped.
func (r *reader) resetRecreated(sess sarama.ConsumerGroupSession) error {
	r.metas.mu.Lock()
	defer r.metas.mu.Unlock()
	for topic, partitions := range r.metas.found {
		reported := topic == r.layout.origin || r.restoredTopics.isRecent(topic)
		for p, found := range partitions {
			if !r.topicIDs.differs(topic, found.meta) {
				continue
			}
			oldest, err := r.client.admin.client.GetOffset(topic, p, sarama.OffsetOldest)
			if err != nil {
				return fmt.Errorf("kafka: asking for the start of %s/%d: %w", topic, p, err)
			}
			text := commitMeta{owner: r.client.owner, topic: r.topicIDs[topic], state: stateLeft, alone: -1}.text(oldest)
			sess.MarkOffset(topic, p, oldest, text)
			sess.ResetOffset(topic, p, oldest, text)
			partitions[p] = claimMeta{offset: oldest}
			if !reported {
				reported = true
				r.sub.Emit(redeliver.MessagesLost{
					Origin: r.layout.origin, Group: r.layout.group, Where: topic,
					Detail: "the topic was deleted with its messages and created again; it is read from its beginning",
				})
			}
		}
	}
	return nil
}

package kafka

import (
	"fmt"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
)

// lives are the ids of topics. A topic that was deleted and created again has the same name
// and another id, and what the group has committed says nothing of it.
type lives map[string]string

// lives asks for the ids of topics. Kafka before 2.8, and clients that are told of an older
// one (Sarama.Version), know none.
func (a admin) lives(topics ...string) (lives, error) {
	there, err := a.topics(topics...)
	if err != nil {
		return nil, err
	}
	ids := make(lives, len(there))
	for name, t := range there {
		if t.Uuid != (sarama.Uuid{}) {
			ids[name] = t.Uuid.String()
		}
	}
	return ids, nil
}

// another reports whether a note was written in another life of the topic.
func (ids lives) another(topic string, n note) bool {
	return n.topic != "" && ids[topic] != "" && n.topic != ids[topic]
}

// beginAnew has the session read partitions from their beginning whose committed offsets
// are of another life of their topic: what was written since it was created again would be
// skipped.
func (r *reader) beginAnew(sess sarama.ConsumerGroupSession) error {
	r.notes.mu.Lock()
	defer r.notes.mu.Unlock()
	for topic, partitions := range r.notes.found {
		told := topic == r.layout.origin || r.restored.by(topic)
		for p, found := range partitions {
			if !r.lives.another(topic, found.note) {
				continue
			}
			oldest, err := r.client.admin.client.GetOffset(topic, p, sarama.OffsetOldest)
			if err != nil {
				return fmt.Errorf("kafka: asking for the start of %s/%d: %w", topic, p, err)
			}
			text := note{owner: r.client.owner, topic: r.lives[topic], state: stateLeft, alone: -1}.text(oldest)
			sess.MarkOffset(topic, p, oldest, text)
			sess.ResetOffset(topic, p, oldest, text)
			partitions[p] = foundNote{offset: oldest}
			if !told {
				told = true
				r.sub.Emit(redeliver.MessagesLost{
					Origin: r.layout.origin, Group: r.layout.group, Where: topic,
					Detail: "somebody deleted the topic, and what lay on it, and created it again; it is read from its beginning",
				})
			}
		}
	}
	return nil
}

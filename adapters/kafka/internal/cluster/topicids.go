package cluster

import "github.com/IBM/sarama"

// TopicIDs are the ids of existing topics, by name. If a topic is deleted and created again, its id changes, and the
// group's offsets do not apply to it. An id is empty before Kafka 2.8, or if Sarama.Version is older.
type TopicIDs map[string]string

// TopicIDs asks for the ids of topics.
func (a Admin) TopicIDs(topics ...string) (TopicIDs, error) {
	existing, err := a.Topics(topics...)
	if err != nil {
		return nil, err
	}
	ids := make(TopicIDs, len(existing))
	for name, t := range existing {
		ids[name] = IDOf(t)
	}
	return ids, nil
}

// IDOf returns the id of a topic, or "" if the broker has not told it.
func IDOf(t *sarama.TopicMetadata) string {
	if t.Uuid == (sarama.Uuid{}) {
		return ""
	}
	return t.Uuid.String()
}

// Missing returns a claimed topic that does not exist, or "". Such a topic was deleted after its assignment. Without
// its id the session could not see that the offsets do not apply to a later topic of the same name.
func (ids TopicIDs) Missing(claims map[string][]int32) string {
	for topic := range claims {
		if _, exists := ids[topic]; !exists {
			return topic
		}
	}
	return ""
}

// Differs reports whether id is that of an earlier topic of the same name. An unknown id, "", does not differ.
func (ids TopicIDs) Differs(topic, id string) bool {
	return id != "" && ids[topic] != "" && id != ids[topic]
}

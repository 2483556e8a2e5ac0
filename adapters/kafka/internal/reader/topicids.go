package reader

import (
	"maps"
	"slices"
	"sync"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
)

// sessionIDs has the ids of the topics that a reader reads: the origin and its levels. sarama fetches by name. If a
// topic is deleted and created again while a session runs, sarama goes on at its old position, and the records before
// it would be skipped.
type sessionIDs struct {
	mu      sync.Mutex
	last    cluster.TopicIDs // of the last session that began, and earlier ones of topics that were missing then
	running bool             // that session has not ended
}

// begin sets the ids of the session that begins. An expected topic that is missing keeps its id: when it exists again, it
// is another topic.
func (s *sessionIDs) begin(ids cluster.TopicIDs, expected []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := maps.Clone(ids)
	for _, name := range expected {
		if id := s.last[name]; last[name] == "" && id != "" {
			last[name] = id
		}
	}
	s.last, s.running = last, true
}

// end says that the session has ended. The next one compares its ids itself.
func (s *sessionIDs) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
}

// topics returns the topics of the running session.
func (s *sessionIDs) topics() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return nil
	}
	return slices.Collect(maps.Keys(s.last))
}

// differFrom returns the topics that were created again since the last session began.
func (s *sessionIDs) differFrom(ids cluster.TopicIDs) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	topics := make(map[string]bool)
	for topic, id := range s.last {
		if ids.Differs(topic, id) {
			topics[topic] = true
		}
	}
	return topics
}

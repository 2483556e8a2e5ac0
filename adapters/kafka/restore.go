package kafka

import (
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
)

// minRestoreInterval is the least time between two restores of a topic. If a program deletes it in a loop, that is
// reported.
const minRestoreInterval = time.Minute

// restoredTopics has the times at which deleted topics of ours were created again.
type restoredTopics struct {
	mu         sync.Mutex
	restoredAt map[string]time.Time
}

// restore creates again those of our topics that were deleted since the subscription began. Without them no member
// could join, or failed messages could not be written. It returns all topics, and those that are missing and must be
// left out.
func (r *reader) restore(existing map[string]*sarama.TopicMetadata) (map[string]*sarama.TopicMetadata, []string, error) {
	r.restoredTopics.mu.Lock()
	defer r.restoredTopics.mu.Unlock()
	var created, missing []string
	for _, t := range r.layout.topics {
		if t.old || existing[t.name] != nil || t.rung && !r.extra.has(t.level) {
			continue
		}
		own, err := r.restoreLocked(t)
		if err != nil {
			missing = append(missing, t.name)
			r.reportOften(t.name, redeliver.ChangeTopicMissing, t.name+": the others are read until a message must be written to it", err)
			continue
		}
		created = append(created, t.name)
		if own { // only the member that created it reports the loss
			r.sub.Emit(redeliver.MessagesLost{
				Origin: r.layout.origin, Group: r.layout.group, Where: t.name,
				Detail: "the topic was deleted with its messages; it was created again. Check who may delete topics",
			})
		}
	}
	if len(created) == 0 {
		return existing, missing, nil
	}
	// The offsets of all members' lanes belong to the deleted topic.
	defer r.extra.rejoin()
	if err := r.client.admin.AwaitLeaders(created...); err != nil {
		return nil, nil, err
	}
	existing, err := r.client.admin.Topics()
	return existing, missing, err
}

// isRecent reports whether this member has created a topic again lately, and reported that.
func (r *restoredTopics) isRecent(topic string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.restoredAt[topic]) < minRestoreInterval
}

func (r *reader) restoreLocked(t ownTopic) (created bool, err error) {
	if r.client.cfg.NoProvisioning {
		return false, fmt.Errorf("kafka: topic %s was deleted, and NoProvisioning is set: create it with partitions=%d, replicas=%d, %s", t.name, t.partitions, t.replicas, cluster.SettingsText(t.settings))
	}
	if time.Since(r.restoredTopics.restoredAt[t.name]) < minRestoreInterval {
		return false, fmt.Errorf("kafka: topic %s was deleted again within %s: it is created again after that, or when a process starts", t.name, minRestoreInterval)
	}
	if created, err = r.client.admin.CreateTopic(t.spec(), r.layout.neededRetention()); created {
		if r.restoredTopics.restoredAt == nil {
			r.restoredTopics.restoredAt = make(map[string]time.Time)
		}
		r.restoredTopics.restoredAt[t.name] = time.Now()
	}
	return created, err
}

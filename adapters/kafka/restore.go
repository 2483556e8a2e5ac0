package kafka

import (
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
)

// minRestoreInterval is after how long a topic is created once more: who deletes it a second
// time may mean it.
const minRestoreInterval = time.Hour

// restored is when topics of ours were created again that somebody had deleted.
type restored struct {
	mu sync.Mutex
	at map[string]time.Time
}

// restore creates topics of ours again that somebody has deleted since the subscription
// began. Without them no member could join, or what fails could not be written. It returns
// what is there then, and which topics are missing all the same: they are left out.
func (r *reader) restore(there map[string]*sarama.TopicMetadata) (map[string]*sarama.TopicMetadata, []string, error) {
	r.restored.mu.Lock()
	defer r.restored.mu.Unlock()
	var created, missing []string
	for _, t := range r.layout.topics {
		if t.old || there[t.name] != nil || t.rung && !r.extra.has(t.level) {
			continue
		}
		is, err := r.restoreLocked(t)
		if err != nil {
			missing = append(missing, t.name)
			r.tellAgain(t.name, redeliver.ChangeTopicMissing, t.name+": the others are read, and what is to be written there waits", err)
			continue
		}
		created = append(created, t.name)
		if is { // by this member: the others say nothing
			r.sub.Emit(redeliver.MessagesLost{
				Origin: r.layout.origin, Group: r.layout.group, Where: t.name,
				Detail: "somebody deleted the topic, and what lay on it; it was created again. See who may delete topics",
			})
		}
	}
	if len(created) == 0 {
		return there, missing, nil
	}
	// The lanes, and those of other members, are where they were on the topic that is gone.
	defer r.extra.joinAnew()
	if err := r.client.admin.awaitLeaders(created...); err != nil {
		return nil, nil, err
	}
	there, err := r.client.admin.topics()
	return there, missing, err
}

// by reports whether this member has created a topic again, lately, and told of it.
func (r *restored) by(topic string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.at[topic]) < minRestoreInterval
}

func (r *reader) restoreLocked(t ownTopic) (created bool, err error) {
	if r.client.cfg.NoProvisioning {
		return false, fmt.Errorf("kafka: topic %s was deleted, and NoProvisioning is set: create it with %d partitions, %d replicas and %s", t.name, t.partitions, t.replicas, settingsText(t.settings))
	}
	if time.Since(r.restored.at[t.name]) < minRestoreInterval {
		return false, fmt.Errorf("kafka: topic %s was deleted again within %s: it is created again after that, or when a process starts", t.name, minRestoreInterval)
	}
	if created, err = r.client.admin.create(t, r.layout.neededRetention()); created {
		if r.restored.at == nil {
			r.restored.at = make(map[string]time.Time)
		}
		r.restored.at[t.name] = time.Now()
	}
	return created, err
}

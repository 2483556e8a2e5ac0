package topology

import (
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
)

// minRestoreInterval is the least time between two restores of a topic. If a program deletes it in a loop, that is
// reported.
const minRestoreInterval = time.Minute

// restore creates again those of our topics that were deleted since the subscription began. Without them no member
// could join, or failed messages could not be written. It returns all topics, and those that are missing and must be
// left out.
func (k *Keeper) restore(existing map[string]*sarama.TopicMetadata) (map[string]*sarama.TopicMetadata, []string, error) {
	k.restoreMu.Lock()
	defer k.restoreMu.Unlock()
	var created, reported, missing []string
	for _, t := range k.layout.Topics {
		if t.Old || existing[t.Name] != nil || t.Rung && !k.reads(t.Level) {
			continue
		}
		own, err := k.restoreLocked(t)
		if err != nil {
			missing = append(missing, t.Name)
			k.report(t.Name, redeliver.ChangeTopicMissing, t.Name+": the others are read until a message must be written to it", err)
			continue
		}
		created = append(created, t.Name)
		if own { // only the member that created it reports the loss
			reported = append(reported, t.Name)
			k.sub.Emit(redeliver.MessagesLost{
				Origin: k.layout.Origin, Group: k.layout.Group, Where: t.Name,
				Detail: "the topic was deleted with its messages; it was created again. Check who may delete topics",
			})
		}
	}
	if len(created) == 0 {
		return existing, missing, nil
	}
	// The offsets of all members' lanes belong to the deleted topic. If nobody reads it, what runs must not end.
	if slices.ContainsFunc(created, k.layout.waits) {
		defer k.Rejoin()
	}
	if err := k.provisioner.Admin.AwaitLeaders(created...); err != nil {
		return nil, nil, err
	}
	existing, err := k.listTopics()
	for _, name := range reported {
		if t := existing[name]; t != nil {
			k.restored[name] = cluster.IDOf(t)
		}
	}
	return existing, missing, err
}

// HasReported reports whether this member has created the topic with this id in place of a deleted one, and has reported
// that. A name is not enough: the new topic may be deleted, too.
func (k *Keeper) HasReported(topic, id string) bool {
	k.restoreMu.Lock()
	defer k.restoreMu.Unlock()
	return id != "" && k.restored[topic] == id
}

func (k *Keeper) restoreLocked(t Topic) (created bool, err error) {
	if k.provisioner.Config.NoProvisioning {
		return false, fmt.Errorf("kafka: topic %s was deleted, and NoProvisioning is set: create it with %s", t.Name, t.spec())
	}
	if time.Since(k.restoredAt[t.Name]) < minRestoreInterval {
		return false, fmt.Errorf("kafka: topic %s was deleted again within %s: it is created again after that, or when a process starts", t.Name, minRestoreInterval)
	}
	admin, spec := k.provisioner.Admin, t.spec()
	created, err = admin.CreateTopic(spec)
	_ = cluster.Done(admin.Client, spec.Creation(), err)
	if created {
		k.restoredAt[t.Name] = time.Now()
	}
	return created, err
}

package kafkashare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wait"
)

// checkInterval is how often settled records of levels and the retry topic are deleted: the retention of these topics is
// unlimited, so the broker does not do that. Operations that fail are tried as often.
const checkInterval = 30 * time.Second

// keepDeleting deletes settled records until ctx ends. Without the right to delete, records stay, but no message is
// lost.
func (m *levelMember) keepDeleting(ctx context.Context) {
	var failure engine.Lasting
	for wait.For(ctx, m.r.client.checkInterval) == nil {
		if err := m.deleteSettled(ctx); err == nil {
			failure.Worked()
		} else if ctx.Err() == nil && failure.Failed(err) {
			m.r.sub.EmitChange(redeliver.ChangeRecordsNotDeleted, "they stay; no message is lost", err)
		}
	}
}

// deleteSettled deletes the records below the offset that is both settled here and committed: no member reads them
// again. If a topic was deleted and created again, these offsets belong to the earlier topic, and nothing is deleted.
func (m *levelMember) deleteSettled(ctx context.Context) error {
	committed := m.cl.CommittedOffsets()
	below := make(map[*levelSource]int64)
	var topics []string
	m.mu.Lock()
	for p, s := range m.sources {
		if offset := min(committed[p.topic][p.n].Offset, s.settledBelow.Load()); offset > s.deletedBelow {
			below[s] = offset
			topics = append(topics, p.topic)
		}
	}
	m.mu.Unlock()
	if len(below) == 0 {
		return nil
	}
	found, _, err := m.r.client.admin.topics(ctx, topics...)
	if err != nil {
		return err
	}
	var offsets kadm.Offsets
	for s, offset := range below {
		if found[s.p.topic].TopicID == s.topicID {
			offsets.AddOffset(s.p.topic, s.p.n, offset, -1)
		}
	}
	deleted, err := kadm.NewClient(m.r.client.client).DeleteRecords(ctx, offsets)
	for topic, partitions := range deleted {
		for _, d := range partitions {
			err = errors.Join(err, explain(kafkaname.ToTopic("DeleteRecords", "Delete", topic), d.Err))
		}
	}
	if err != nil {
		return fmt.Errorf("kafkashare: deleting settled records of %v: %w", topics, err)
	}
	for s, offset := range below {
		s.deletedBelow = offset
	}
	return nil
}

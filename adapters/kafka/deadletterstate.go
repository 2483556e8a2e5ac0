package kafka

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/internal/wirename"
)

// refresh reads the state topic to its end, and reports records that redeliver cannot have written.
func (q *deadQueue) refresh(ctx context.Context) error {
	unreadable, err := q.readState(ctx)
	if unreadable > 0 {
		q.client.cfg.Sink.Event(redeliver.SubscriptionChanged{
			Origin: q.info.Origin, Group: q.info.Group, Change: redeliver.ChangeDLQStateUnknown,
			Detail: fmt.Sprintf("%d records of %s are skipped; check which other programs write to it", unreadable, q.state.Topic),
		})
	}
	return err
}

// readState reads the state topic to its end. It returns how many records it could not read.
func (q *deadQueue) readState(ctx context.Context) (unreadable int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.hasState {
		existing, err := q.findTopics(ctx)
		if err != nil {
			return 0, err
		}
		if q.setTopicsLocked(existing); !q.hasState {
			return 0, nil
		}
	}
	start, end, err := q.state.Bounds(ctx, 0)
	if err != nil {
		return 0, err
	}
	if end < q.ledger.next { // the topic was deleted and created again
		q.ledger = newLedger()
	}
	before := q.ledger.unreadable
	q.ledger.next, err = q.state.ReadToEnd(ctx, 0, max(q.ledger.next, start), end, func(r *topiclog.Record) { q.ledger.apply(r.Key, r.Value) })
	return q.ledger.unreadable - before, err
}

// provisionState creates the state topic, or checks the existing one. existing is the result of findTopics.
func (q *deadQueue) provisionState(existing map[string]*sarama.TopicMetadata) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.setTopicsLocked(existing)
	if state := existing[q.state.Topic]; state != nil {
		return q.checkState(len(state.Partitions))
	}
	if err := q.client.createCompanion(q.info.DLQ+wirename.StateSuffix, stateTopic, existing[q.info.DLQ]); err != nil {
		return err
	}
	q.hasState = true
	return nil
}

// createCompanion creates a companion of an existing topic, with as many replicas.
func (c *Client) createCompanion(name string, k topicKind, of *sarama.TopicMetadata) error {
	settings, err := c.admin.Settings(of.Name)
	if err != nil {
		return err
	}
	t := companion(name, k, int16(len(of.Partitions[0].Replicas)), settings[of.Name]["min.insync.replicas"])
	if c.cfg.NoProvisioning {
		return fmt.Errorf("kafka: topic %s is missing, and NoProvisioning is set: create it with 1 partition, %d replicas and %s", t.name, t.replicas, cluster.SettingsText(t.settings))
	}
	if _, err := c.admin.CreateTopic(t.spec(), 0); err != nil {
		return err
	}
	return c.admin.AwaitLeaders(t.name)
}

// companion returns a compacted topic: a DLQ's state, or the commands to a group.
func companion(name string, k topicKind, replicas int16, minInSync string) ownTopic {
	t := ownTopic{name: name, kind: k, partitions: 1, replicas: replicas, settings: map[string]string{
		"cleanup.policy": "compact",
		// The order of records decides a race for a claim. Compaction must not change it meanwhile.
		"min.compaction.lag.ms":          strconv.FormatInt((10 * time.Minute).Milliseconds(), 10),
		"segment.bytes":                  strconv.Itoa(16 << 20),
		"unclean.leader.election.enable": "false",
	}}
	if k == controlTopic {
		t.settings["message.timestamp.type"] = "LogAppendTime" // the broker's clock times commands
	}
	if minInSync != "" {
		t.settings["min.insync.replicas"] = minInSync
	}
	return t
}

func (q *deadQueue) checkState(partitions int) error {
	settings, err := q.client.admin.Settings(q.state.Topic)
	if err != nil {
		return err
	}
	var ps redeliver.Problems
	if partitions != 1 {
		ps.Add("topic "+q.state.Topic+" partitions", partitions, "must be 1: everybody must read it in the same order")
	}
	if policy := settings[q.state.Topic]["cleanup.policy"]; policy != "compact" {
		ps.Add("topic "+q.state.Topic+" cleanup.policy", policy, "must be compact, or settled messages would be replayed again")
	}
	if err := ps.Err(); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	return nil
}

package kafka

import (
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
)

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

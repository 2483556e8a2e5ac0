package kafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// admin lists and changes topics. It has its own client, because a fetch that waits for records holds its connection.
type admin struct {
	client sarama.Client
	sarama sarama.ClusterAdmin
}

// topics returns the metadata of the named topics that the client may see, or of all topics. A cluster may have many
// thousands, so ask for all only to search by name.
func (a admin) topics(names ...string) (topics map[string]*sarama.TopicMetadata, err error) {
	for range 3 { // a connection that was idle for long may be dead
		if topics, err = a.askTopics(names); err == nil {
			return topics, nil
		}
	}
	return nil, err
}

func (a admin) askTopics(names []string) (map[string]*sarama.TopicMetadata, error) {
	broker := a.client.LeastLoadedBroker()
	if broker == nil {
		return nil, fmt.Errorf("kafka: listing topics: %w", sarama.ErrOutOfBrokers)
	}
	if err := broker.Open(a.client.Config()); err != nil && !errors.Is(err, sarama.ErrAlreadyConnected) {
		return nil, fmt.Errorf("kafka: listing topics: %w", err)
	}
	res, err := broker.GetMetadata(sarama.NewMetadataRequest(a.client.Config().Version, names))
	if err != nil {
		_ = broker.Close() // the next try connects again
		return nil, fmt.Errorf("kafka: listing topics: %w", err)
	}
	topics := make(map[string]*sarama.TopicMetadata, len(res.Topics))
	for _, t := range res.Topics {
		if len(t.Partitions) > 0 {
			topics[t.Name] = t
		}
	}
	return topics, nil
}

// Brokers learn of a new topic at different times.
const (
	unknownTries = 20
	unknownPause = 100 * time.Millisecond
)

// settings returns the configurations of existing topics.
func (a admin) settings(topics ...string) (map[string]map[string]string, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	settings, err := a.describe(topics)
	for tries := 1; errors.Is(err, sarama.ErrUnknownTopicOrPartition) && tries < unknownTries; tries++ {
		<-time.After(unknownPause)
		settings, err = a.describe(topics)
	}
	return settings, err
}

func (a admin) describe(topics []string) (map[string]map[string]string, error) {
	resources := make([]*sarama.ConfigResource, len(topics))
	for i, t := range topics {
		resources[i] = &sarama.ConfigResource{Type: sarama.TopicResource, Name: t}
	}
	results, err := a.sarama.DescribeConfigs(resources, sarama.DescribeConfigsOptions{})
	if err != nil {
		return nil, fmt.Errorf("kafka: reading the settings of %v: %w", topics, err)
	}
	settings := make(map[string]map[string]string, len(topics))
	for _, r := range results {
		switch code := r.ErrorCode; code {
		case sarama.ErrNoError:
		case sarama.ErrUnknownTopicOrPartition:
			return nil, fmt.Errorf("kafka: reading the settings of topic %s: %w", r.Name, code)
		default:
			return nil, fmt.Errorf("kafka: reading the settings of topic %s: %w; the user needs DescribeConfigs on it", r.Name, code)
		}
		settings[r.Name] = make(map[string]string, len(r.Configs))
		for _, e := range r.Configs {
			settings[r.Name][e.Name] = e.Value
		}
	}
	return settings, nil
}

// groupOffsets is what a group has committed.
type groupOffsets struct {
	group    string
	response *sarama.OffsetFetchResponse
}

// groupOffsets asks what a group has committed for partitions.
func (a admin) groupOffsets(group string, partitions map[string][]int32) (groupOffsets, error) {
	found, err := a.sarama.ListConsumerGroupOffsets(group, partitions)
	if err != nil {
		return groupOffsets{}, fmt.Errorf("kafka: reading the offsets of group %s: %w", group, err)
	}
	return groupOffsets{group, found}, nil
}

// offset returns the committed offset of a partition. It is negative if there is none.
func (c groupOffsets) offset(topic string, partition int32) (int64, error) {
	block := c.response.GetBlock(topic, partition)
	switch {
	case block == nil:
		return 0, fmt.Errorf("kafka: reading the offset of group %s for %s/%d: no answer", c.group, topic, partition)
	case !errors.Is(block.Err, sarama.ErrNoError):
		return 0, fmt.Errorf("kafka: reading the offset of group %s for %s/%d: %w", c.group, topic, partition, block.Err)
	}
	return block.Offset, nil
}

// provision checks the topics that exist and creates the others. Several processes may call it at once.
func (c *Client) provision(l *layout) error {
	if err := c.verifyFresh(l); err != nil {
		return err
	}
	created := false
	for _, t := range l.topics {
		if !t.exists && !t.rung {
			if _, err := c.admin.createTopic(t, l.neededRetention()); err != nil {
				return err
			}
			created = true
		}
	}
	if !created {
		return nil
	}
	all := l.subscribed()
	if !l.discards {
		all = append(all, l.topicOf(dlqTopic, 0).name)
	}
	if err := c.admin.awaitLeaders(all...); err != nil {
		return err
	}
	// Another process may have created them with other settings, or the broker may have changed ours.
	fresh, err := c.layout(l.origin, l.group)
	if err != nil {
		return err
	}
	if err := c.verify(fresh); err != nil {
		return err
	}
	*l = *fresh
	return nil
}

// verifyFresh is verify. If a topic was deleted since the topics were listed, as levels of older policies are, it lists
// them again.
func (c *Client) verifyFresh(l *layout) error {
	err := c.verify(l)
	if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return err
	}
	fresh, err := c.layout(l.origin, l.group)
	if err != nil {
		return err
	}
	*l = *fresh
	return c.verify(l)
}

// verify refuses existing topics that cannot hold the policy.
func (c *Client) verify(l *layout) error {
	var names []string
	for _, t := range l.topics {
		if t.exists {
			names = append(names, t.name)
		}
	}
	settings, err := c.admin.settings(names...)
	if err != nil {
		return err
	}
	return l.check(c.cfg, settings)
}

// retentions are tried in order if a managed Kafka refuses -1.
var retentions = []time.Duration{365 * 24 * time.Hour, 90 * 24 * time.Hour, 30 * 24 * time.Hour, 14 * 24 * time.Hour, 7 * 24 * time.Hour}

// createTopic creates a topic, and reports whether it did. An existing topic is no error.
func (a admin) createTopic(t ownTopic, needed time.Duration) (created bool, err error) {
	settings := maps.Clone(t.settings)
	err = a.tryCreate(t, settings)
	for _, r := range retentions {
		if err == nil || t.settings["retention.ms"] != "-1" || !errors.Is(err, sarama.ErrInvalidConfig) && !errors.Is(err, sarama.ErrPolicyViolation) || r < needed {
			break
		}
		settings["retention.ms"] = strconv.FormatInt(r.Milliseconds(), 10)
		err = a.tryCreate(t, settings)
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, sarama.ErrTopicAlreadyExists):
		return false, nil
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed) || errors.Is(err, sarama.ErrClusterAuthorizationFailed):
		return false, fmt.Errorf("kafka: creating topic %s: %w; grant Create, or have it created with partitions=%d, replicas=%d, %s, and set NoProvisioning",
			t.name, err, t.partitions, t.replicas, settingsText(t.settings))
	case errors.Is(err, sarama.ErrInvalidTopic) && a.collidingTopic(t.name) != "":
		return false, fmt.Errorf("kafka: creating topic %s: topic %s exists, and Kafka refuses names that differ only by dots and underscores: %w; "+
			"set Config.Names, to give other names to the topics of one of the two subscriptions", t.name, a.collidingTopic(t.name), err)
	default:
		return false, fmt.Errorf("kafka: creating topic %s with partitions=%d, replicas=%d, %s: %w", t.name, t.partitions, t.replicas, settingsText(settings), err)
	}
}

// collidingTopic returns an existing topic whose name differs only by dots and underscores, or "".
func (a admin) collidingTopic(name string) string {
	all, err := a.topics()
	if err != nil {
		return ""
	}
	same := strings.NewReplacer(".", "_")
	for other := range all {
		if other != name && same.Replace(other) == same.Replace(name) {
			return other
		}
	}
	return ""
}

// maxTimeoutTries bounds how often the brokers are asked to create or delete a topic, each time with sarama's
// Admin.Timeout.
const maxTimeoutTries = 5

func (a admin) tryCreate(t ownTopic, settings map[string]string) error {
	entries := make(map[string]*string, len(settings))
	for k, v := range settings {
		entries[k] = &v
	}
	detail := &sarama.TopicDetail{NumPartitions: t.partitions, ReplicationFactor: t.replicas, ConfigEntries: entries}
	return retryTimeouts(func() error { return a.sarama.CreateTopic(t.name, detail, false) })
}

// addPartitions gives a topic more partitions. It is no error that another member has done so.
func (a admin) addPartitions(topic string, n int) error {
	err := retryTimeouts(func() error { return a.sarama.CreatePartitions(topic, int32(n), nil, false) })
	if err != nil && !errors.Is(err, sarama.ErrInvalidPartitions) {
		return fmt.Errorf("kafka: adding partitions to topic %s: %w; the user needs Alter on it", topic, err)
	}
	return nil
}

// deleteTopic deletes a topic. A missing topic is no error.
func (a admin) deleteTopic(topic string) error {
	err := retryTimeouts(func() error { return a.sarama.DeleteTopic(topic) })
	if err != nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return fmt.Errorf("kafka: deleting topic %s: %w; the user needs Delete on it", topic, err)
	}
	return nil
}

// retryTimeouts repeats a request that timed out. The brokers go on with it, so it may be done by then.
func retryTimeouts(ask func() error) error {
	err := ask()
	for tries := 1; errors.Is(err, sarama.ErrRequestTimedOut) && tries < maxTimeoutTries; tries++ {
		err = ask()
	}
	return err
}

// leaderTimeout bounds how long a new topic may have no leaders. Busy brokers need seconds.
const leaderTimeout = 30 * time.Second

// awaitLeaders returns when all partitions of the topics have a leader. A member that subscribes earlier would see
// fewer partitions and rebalance again.
func (a admin) awaitLeaders(topics ...string) error {
	deadline := time.Now().Add(leaderTimeout)
	for {
		existing, err := a.topics(topics...)
		missing := slices.DeleteFunc(slices.Clone(topics), func(name string) bool {
			t := existing[name]
			return t != nil && !slices.ContainsFunc(t.Partitions, func(p *sarama.PartitionMetadata) bool { return p.Leader < 0 })
		})
		if err == nil && len(missing) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			if err != nil {
				return err
			}
			return fmt.Errorf("kafka: topics %v have no leader on every partition %s after they were created: check whether all brokers are up", missing, leaderTimeout)
		}
		<-time.After(20 * time.Millisecond)
	}
}

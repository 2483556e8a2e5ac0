// Package cluster connects to a cluster and sends the requests that no session sends: for topics, their settings and
// groups' offsets, and commits with an answer.
//
// sarama's functions take no context, and some of its requests fail once on a connection that was idle for long or
// while a coordinator moves. This package bounds them by a context and repeats them where a repetition does no harm. It
// knows nothing of retries, levels and DLQs. Its errors say which right a user needs.
package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/internal/kafkaname"
)

// Admin lists and changes topics. It has its own client, because a fetch that waits for records blocks a connection.
type Admin struct {
	Client sarama.Client
	Sarama sarama.ClusterAdmin
}

// Topics returns the metadata of the named topics, or without names of all that the user may describe. If it may not
// describe some of the named topics, Topics returns the others and an error. A cluster may have thousands of topics: ask
// for all only to search by name.
func (a Admin) Topics(names ...string) (topics map[string]*sarama.TopicMetadata, err error) {
	for range 3 { // a connection that was idle for long may be dead
		if topics, err = a.askTopics(names); err == nil || IsDenied(err) {
			break
		}
	}
	return topics, err
}

func (a Admin) askTopics(names []string) (map[string]*sarama.TopicMetadata, error) {
	broker := a.Client.LeastLoadedBroker()
	if broker == nil {
		return nil, fmt.Errorf("kafka: listing topics: %w", sarama.ErrOutOfBrokers)
	}
	if err := broker.Open(a.Client.Config()); err != nil && !errors.Is(err, sarama.ErrAlreadyConnected) {
		return nil, fmt.Errorf("kafka: listing topics: %w", err)
	}
	res, err := broker.GetMetadata(sarama.NewMetadataRequest(a.Client.Config().Version, names))
	if err != nil {
		_ = broker.Close() // the next try connects again
		return nil, fmt.Errorf("kafka: listing topics: %w", err)
	}
	topics := make(map[string]*sarama.TopicMetadata, len(res.Topics))
	var errs []error
	for _, t := range res.Topics {
		if len(t.Partitions) > 0 {
			topics[t.Name] = t
		}
		var denied error // other errors mean that the topic does not exist, or not yet
		if IsDenied(t.Err) {
			denied = fmt.Errorf("kafka: asking about topic %s: %w", t.Name, t.Err)
		}
		if len(names) > 0 { // a list of all has no topic that the user may not see
			errs = append(errs, Done(a.Client, ToTopic("Metadata", "Describe", t.Name), denied))
		}
	}
	return topics, errors.Join(errs...)
}

// Brokers learn of a new topic at different times.
const (
	maxUnknownTries = 20
	unknownPause    = 100 * time.Millisecond
)

// Settings returns the configurations of existing topics.
func (a Admin) Settings(topics ...string) (map[string]map[string]string, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	settings, err := a.describe(topics)
	for tries := 1; errors.Is(err, sarama.ErrUnknownTopicOrPartition) && tries < maxUnknownTries; tries++ {
		<-time.After(unknownPause)
		settings, err = a.describe(topics)
	}
	return settings, err
}

func (a Admin) describe(topics []string) (map[string]map[string]string, error) {
	resources := make([]*sarama.ConfigResource, len(topics))
	for i, t := range topics {
		resources[i] = &sarama.ConfigResource{Type: sarama.TopicResource, Name: t}
	}
	results, err := a.Sarama.DescribeConfigs(resources, sarama.DescribeConfigsOptions{})
	if err != nil {
		return nil, fmt.Errorf("kafka: reading the settings of %v: %w", topics, err)
	}
	settings := make(map[string]map[string]string, len(topics))
	var errs []error
	for _, r := range results {
		var err error
		if r.ErrorCode != sarama.ErrNoError {
			err = fmt.Errorf("kafka: reading the settings of topic %s: %w", r.Name, r.ErrorCode)
		}
		if err = Done(a.Client, ToTopic("DescribeConfigs", "DescribeConfigs", r.Name), err); err != nil {
			errs = append(errs, err)
			continue
		}
		settings[r.Name] = make(map[string]string, len(r.Configs))
		for _, e := range r.Configs {
			settings[r.Name][e.Name] = e.Value
		}
	}
	return settings, errors.Join(errs...)
}

const offsetsRequest = "OffsetFetch"

// GroupOffsets has the committed offsets of a group.
type GroupOffsets struct {
	group    string
	response *sarama.OffsetFetchResponse
	none     bool // the group does not exist
}

// GroupOffsets asks for the committed offsets of a group.
func (a Admin) GroupOffsets(group string, partitions map[string][]int32) (GroupOffsets, error) {
	found, err := a.Sarama.ListConsumerGroupOffsets(group, partitions)
	if err == nil && !errors.Is(found.Err, sarama.ErrNoError) {
		err = found.Err
	}
	if err != nil {
		err = fmt.Errorf("kafka: reading the offsets of group %s: %w", group, err)
	}
	toGroup := ToGroup(offsetsRequest, "Describe", group)
	if errors.Is(err, sarama.ErrGroupIDNotFound) {
		_ = Done(a.Client, toGroup, nil)
		return GroupOffsets{}, err
	}
	if err = Done(a.Client, toGroup, err); err != nil {
		return GroupOffsets{}, err
	}
	for topic, blocks := range found.Blocks {
		var denied error
		for _, block := range blocks {
			if IsDenied(block.Err) {
				denied = fmt.Errorf("kafka: reading the offsets of group %s for %s: %w", group, topic, block.Err)
			}
		}
		_ = Done(a.Client, ToTopic(offsetsRequest, "Describe", topic), denied) // Offset returns it
	}
	return GroupOffsets{group: group, response: found}, nil
}

// GroupOffsetsIfAny is GroupOffsets for a group that need not exist: then it has no offsets. Some brokers answer with
// an error for a group without members and offsets.
func (a Admin) GroupOffsetsIfAny(group string, partitions map[string][]int32) (GroupOffsets, error) {
	found, err := a.GroupOffsets(group, partitions)
	if errors.Is(err, sarama.ErrGroupIDNotFound) {
		return GroupOffsets{group: group, response: new(sarama.OffsetFetchResponse), none: true}, nil
	}
	return found, err
}

// Offset returns the committed offset of a partition. It is negative if there is none.
func (c GroupOffsets) Offset(topic string, partition int32) (int64, error) {
	block := c.response.GetBlock(topic, partition)
	switch {
	case c.none:
		return -1, nil
	case block == nil:
		return 0, fmt.Errorf("kafka: reading the offset of group %s for %s/%d: no answer", c.group, topic, partition)
	case !errors.Is(block.Err, sarama.ErrNoError):
		return 0, Explain(ToTopic(offsetsRequest, "Describe", topic), fmt.Errorf("kafka: reading the offset of group %s for %s/%d: %w", c.group, topic, partition, block.Err))
	}
	return block.Offset, nil
}

// Metadata returns the metadata of a partition's committed offset. It is "" if there is none.
func (c GroupOffsets) Metadata(topic string, partition int32) string {
	if block := c.response.GetBlock(topic, partition); block != nil {
		return block.Metadata
	}
	return ""
}

// Any reports whether the group has committed an offset anywhere.
func (c GroupOffsets) Any() bool {
	for _, partitions := range c.response.Blocks {
		for _, block := range partitions {
			if block.Offset >= 0 {
				return true
			}
		}
	}
	return false
}

// Topic is a topic to create.
type Topic struct {
	Name       string
	Partitions int32 // -1 for the default of the broker, as for replicas
	Replicas   int16
	Settings   map[string]string
	// Kept is the shortest retention.ms that will do, and BatchBytes the least max.message.bytes; 0 for none.
	Kept       time.Duration
	BatchBytes int
}

// String says how the topic should be created.
func (t Topic) String() string {
	return fmt.Sprintf("partitions=%d, replicas=%d, %s", t.Partitions, t.Replicas, kafkaname.SettingsText(t.Settings))
}

// Creation returns the request that creates the topic.
func (t Topic) Creation() Request { return ToTopic("CreateTopics", "Create", t.Name) }

// CreateTopic creates a topic, and reports whether it did. An existing topic is no error. It leaves out settings that the
// broker refuses: the caller must read back what the topic has, and refuse what breaks a promise.
func (a Admin) CreateTopic(t Topic) (created bool, err error) {
	err = (&kafkaname.Creation{
		Topic: t.Name, Settings: t.Settings, Kept: t.Kept, BatchBytes: t.BatchBytes,
		Try: func(settings map[string]string) error { return a.tryCreate(t, settings) },
		Refuses: func(err error) bool {
			return errors.Is(err, sarama.ErrInvalidConfig) || errors.Is(err, sarama.ErrPolicyViolation)
		},
	}).Create()
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, sarama.ErrTopicAlreadyExists):
		return false, nil
	case IsDenied(err):
		return false, fmt.Errorf("%w, or have it created with %s, and set NoProvisioning", Explain(t.Creation(), fmt.Errorf("kafka: creating topic %s: %w", t.Name, err)), t)
	case errors.Is(err, sarama.ErrInvalidTopic) && a.collidingTopic(t.Name) != "":
		return false, fmt.Errorf("kafka: creating topic %s: topic %s exists, and Kafka refuses names that differ only by dots and underscores: %w; "+
			"set Config.Names, to give other names to the topics of one of the two subscriptions", t.Name, a.collidingTopic(t.Name), err)
	default:
		return false, fmt.Errorf("kafka: creating topic %s with %s: %w", t.Name, t, err)
	}
}

// DeleteRecords deletes the records of partitions below the given offsets.
func (a Admin) DeleteRecords(topic string, below map[int32]int64) error {
	if err := a.Sarama.DeleteRecords(topic, below); err != nil {
		return Explain(ToTopic("DeleteRecords", "Delete", topic), fmt.Errorf("kafka: deleting records of topic %s: %w", topic, err))
	}
	return nil
}

// collidingTopic returns an existing topic whose name differs only by dots and underscores, or "".
func (a Admin) collidingTopic(name string) string {
	all, err := a.Topics()
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

// maxTimeoutTries bounds how often a request that changes topics is sent, each time with sarama's
// Admin.Timeout.
const maxTimeoutTries = 5

func (a Admin) tryCreate(t Topic, settings map[string]string) error {
	entries := make(map[string]*string, len(settings))
	for k, v := range settings {
		entries[k] = &v
	}
	detail := &sarama.TopicDetail{NumPartitions: t.Partitions, ReplicationFactor: t.Replicas, ConfigEntries: entries}
	return retryTimeouts(func() error { return a.Sarama.CreateTopic(t.Name, detail, false) })
}

// AddPartitions grows a topic to n partitions. It is no error if another member has done so.
func (a Admin) AddPartitions(topic string, n int) error {
	err := retryTimeouts(func() error { return a.Sarama.CreatePartitions(topic, int32(n), nil, false) })
	if err != nil {
		err = fmt.Errorf("kafka: adding partitions to topic %s: %w", topic, err)
	}
	if errors.Is(err, sarama.ErrInvalidPartitions) {
		err = nil
	}
	return Done(a.Client, ToTopic("CreatePartitions", "Alter", topic), err)
}

// retryTimeouts repeats a request that timed out. The first one may meanwhile have succeeded.
func retryTimeouts(ask func() error) error {
	err := ask()
	for tries := 1; errors.Is(err, sarama.ErrRequestTimedOut) && tries < maxTimeoutTries; tries++ {
		err = ask()
	}
	return err
}

// leaderTimeout bounds how long a new topic may have no leaders. Busy brokers need seconds.
const leaderTimeout = 30 * time.Second

// AwaitLeaders returns when all partitions of the topics have a leader. A member that subscribes earlier would see
// fewer partitions and rebalance again.
func (a Admin) AwaitLeaders(topics ...string) error {
	deadline := time.Now().Add(leaderTimeout)
	for {
		existing, err := a.Topics(topics...)
		missing := slices.DeleteFunc(slices.Clone(topics), func(name string) bool {
			t := existing[name]
			return t != nil && !slices.ContainsFunc(t.Partitions, func(p *sarama.PartitionMetadata) bool { return p.Leader < 0 })
		})
		if err == nil && len(missing) == 0 {
			return nil
		}
		if IsDenied(err) {
			return err
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

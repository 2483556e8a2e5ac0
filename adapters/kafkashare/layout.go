package kafkashare

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/internal/wirename"
)

const (
	// slack is by how much a level may exceed the wait of a message on it. The reader lets the message go when it is
	// due.
	slack = 100 * time.Millisecond
	// maxBatchBytes is the largest batch of a client of franz-go.
	maxBatchBytes = 100 << 20
)

// layout has the topics of one subscription. Their names are those of adapters/kafka, so that the command and the
// console find its DLQ. It implements driver.Store.
type layout struct {
	origin, group string
	policy        redeliver.Policy
	fingerprint   string
	ladder        delayqueue.Ladder
	jitter        time.Duration // the largest that the policy's backoff adds to a delay
	retry, dlq    string
	control       string // the topic with the mark of a pause; adapters/kafka has commands there, too
	topics        []plannedTopic
	recordBytes   int           // of the origin's largest record
	writer        *recordWriter // writes to our topics
	publisher     *recordWriter // writes to the origin, and chooses partitions by key
}

func dlqName(topic, group string) string { return kafkaname.Base(topic, group) + wirename.DLQSuffix }

// level returns the level of a topic on which messages wait, 0 for l.retry.
func (l *layout) level(topic string) (level time.Duration, ok bool) {
	return kafkaname.Level(l.retry, topic)
}

// waitTopics returns a regular expression for the topics on which messages wait. It matches the levels of other
// policies, too.
func (l *layout) waitTopics() string {
	return "^" + regexp.QuoteMeta(l.retry) + `(\.([0-9.]+(h|m|s|ms))+)?$`
}

// topicFor returns the topic on which a message waits from now until due.
func (l *layout) topicFor(due, now time.Time) string {
	if level, ok := l.ladder.Next(due.Sub(now), slack); ok {
		return kafkaname.Delay(l.retry, level)
	}
	return l.retry
}

// Places returns the names of our topics.
func (l *layout) Places() engine.Places {
	own := slices.DeleteFunc(l.topicNames(), func(name string) bool { return name == l.dlq })
	return engine.Places{Origin: l.origin, DLQ: l.dlq, Own: append(own, l.control)}
}

// topicNames returns the names of our topics.
func (l *layout) topicNames() []string {
	names := make([]string, len(l.topics))
	for i, t := range l.topics {
		names[i] = t.Name
	}
	return names
}

// inspect compares the cluster with the configuration. It returns the layout even with a redeliver.ConfigError, about
// existing topics that would lose messages and missing ones that the client may not create.
func (c *client) inspect(ctx context.Context, topic string) (*layout, error) {
	var ps check.Problems
	if kafkaname.CheckTopic(&ps, "topic", topic); ps != nil {
		return nil, fmt.Errorf("kafkashare: %w", ps.Err())
	}
	p := c.cfg.policy(topic)
	l := &layout{
		origin: topic, group: c.cfg.Group, policy: p, fingerprint: delayqueue.Fingerprint(p), ladder: delayqueue.NewLadder(p),
		retry: kafkaname.Base(topic, c.cfg.Group) + wirename.RetrySuffix, dlq: dlqName(topic, c.cfg.Group),
		publisher: c.publisher, control: c.controlTopic(topic),
	}
	_, l.jitter, _ = p.Delays()
	found, err := c.admin.awaitLeaders(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("%w; create %s before it is subscribed to", err, topic)
	}
	settings, err := c.admin.settings(ctx, kmsg.ConfigResourceTypeTopic, topic)
	if err != nil {
		return nil, err
	}
	if l.recordBytes, err = strconv.Atoi(settings.all["max.message.bytes"]); err != nil {
		l.recordBytes = 1 << 20
	}
	l.addTopics(found[topic].Partitions, settings.all["min.insync.replicas"])
	if err := c.checkTopics(ctx, &ps, l); err != nil {
		return nil, err
	}
	if err := ps.Err(); err != nil {
		return l, fmt.Errorf("kafkashare: %w", err)
	}
	return l, nil
}

// addTopics adds our topics with the settings with which they are created. partitions are the origin's.
func (l *layout) addTopics(partitions []kmsg.MetadataResponseTopicPartition, minInSync string) {
	add := func(name, kind string, level time.Duration) {
		l.topics = append(l.topics, plannedTopic{
			Name: name, Kind: kind, Level: level, Partitions: min(int32(len(partitions)), maxOwnPartitions), Replicas: int16(len(partitions[0].Replicas)),
			Settings: kafkaname.Settings(l.recordBytes, 0, minInSync),
		})
	}
	for _, level := range l.ladder {
		add(kafkaname.Delay(l.retry, level), kindDelay, level)
	}
	add(l.retry, kindRetry, 0)
	add(l.dlq, kindDLQ, 0)
}

// checkTopics records which of our topics exist, and adds their problems.
func (c *client) checkTopics(ctx context.Context, ps *check.Problems, l *layout) error {
	existing, _, err := c.admin.topics(ctx, l.topicNames()...)
	if err != nil {
		return err
	}
	for i := range l.topics {
		t := &l.topics[i]
		switch m, exists := existing[t.Name]; {
		case exists:
			t.Partitions, t.Exists = int32(len(m.Partitions)), true
			if err := c.checkTopic(ctx, ps, l, t); err != nil {
				return err
			}
		case c.cfg.NoProvisioning:
			rules.AddMissing(ps, "topic", t.Name, fmt.Sprintf("Create it with partitions=%d, replicas=%d, %s", t.Partitions, t.Replicas, kafkaname.SettingsText(t.Settings)))
		}
	}
	return nil
}

// checkTopic adds the problems of an existing topic of ours. The user chooses how long dead letters are kept.
func (c *client) checkTopic(ctx context.Context, ps *check.Problems, l *layout, t *plannedTopic) error {
	s, err := c.admin.settings(ctx, kmsg.ConfigResourceTypeTopic, t.Name)
	if err != nil {
		return err
	}
	kafkaname.CheckSettings(ps, t.Name, l.origin, t.waits(), t.Settings, s.all, l.recordBytes+limits.MaxHeaderBytes)
	if kept := s.all["retention.ms"]; t.waits() && kept != "-1" && kept != "" {
		ps.Add("topic "+t.Name+" retention.ms", kept, "must be -1: messages that wait would be lost")
	}
	return nil
}

// prepareLayout sets the group's configuration, creates or checks our topics, and returns the layout of a topic.
func (c *client) prepareLayout(ctx context.Context, topic string) (*layout, error) {
	c.preparing.Lock()
	defer c.preparing.Unlock()
	c.mu.Lock()
	l, closed := c.layouts[topic], c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return nil, errClosed
	case l != nil:
		return l, nil
	}
	l, err := c.inspect(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := engine.CheckDistinct("kafkashare", l, maps.Values(c.layouts)); err != nil { // only prepareLayout adds layouts
		return nil, err
	}
	if err := c.provision(ctx, l); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.layouts[topic] = l
	return l, nil
}

// provision sets the group's configuration, creates the topics that are missing, and makes their writer.
func (c *client) provision(ctx context.Context, l *layout) error {
	if err := c.configureGroup(ctx); err != nil {
		return err
	}
	for _, t := range l.topics {
		if !t.Exists {
			if err := c.admin.create(ctx, t, l.recordBytes+limits.MaxHeaderBytes); err != nil {
				return err
			}
		}
	}
	if _, err := c.admin.awaitLeaders(ctx, l.topicNames()...); err != nil {
		return err
	}
	var ps check.Problems
	for i := range l.topics { // the broker may have refused a setting, or ignored one
		if t := &l.topics[i]; !t.Exists {
			if err := c.checkTopic(ctx, &ps, l, t); err != nil {
				return err
			}
		}
	}
	if err := ps.Err(); err != nil {
		return fmt.Errorf("kafkashare: %w", err)
	}
	var err error
	l.writer, err = c.newWriter(kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(choosePartition)), kgo.ProducerLinger(0),
		kgo.ProducerBatchMaxBytes(int32(min(l.recordBytes+kafkaname.HeaderRoom, maxBatchBytes))))
	return err
}

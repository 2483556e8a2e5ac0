package kafka

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wirename"
)

// Bounds of a delay topic's retention if the broker refuses -1.
const (
	retentionFactor = 4
	minRetention    = 7 * 24 * time.Hour
)

// layout has the topics of one subscription: the ones that it needs and the ones that exist.
type layout struct {
	origin, group  string
	policy         redeliver.Policy
	ladder         delayqueue.Ladder
	partitions     int32 // of the origin
	maxRecordBytes int   // largest record of the origin
	fingerprint    string
	topics         []ownTopic
	state          ownTopic // topic for work on the DLQ; members do not need it
	control        ownTopic // topic of commands; members do not need it
	discards       bool     // there is no DLQ
	// maxWait is the longest wait that may be asked for. It depends on the retention of the delay topics.
	maxWait time.Duration
	// warnings are problems of levels of older policies, and unfit are problems of rungs. They do not refuse a start,
	// because nothing is written there.
	warnings, unfit redeliver.Problems
	// writable has the levels that this process writes to, see rungs.
	writable *atomic.Pointer[delayqueue.Ladder]
}

// ownTopic is one topic of redeliver.
type ownTopic struct {
	name       string
	kind       topicKind
	level      time.Duration // of a delay topic
	partitions int32
	replicas   int16
	settings   map[string]string
	wanted     int32 // partitions with which it is created
	exists     bool
	rung       bool // created when a wait first needs it
	unfit      bool // a rung that exists but would lose messages
	old        bool // a level of an older policy, read until it is empty
}

type topicKind string

const (
	delayTopic   topicKind = "delay"
	retryTopic   topicKind = "retry"
	dlqTopic     topicKind = "dlq"
	stateTopic   topicKind = "state"
	controlTopic topicKind = "control"
)

// spec returns how the topic is created.
func (t ownTopic) spec() cluster.Topic {
	return cluster.Topic{Name: t.name, Partitions: t.partitions, Replicas: t.replicas, Settings: t.settings}
}

// waits reports whether messages wait on the topic and come back from it.
func (t ownTopic) waits() bool { return t.kind != dlqTopic }

// layout lists the topics of the cluster and returns the layout of a subscription.
func (c *Client) layout(topic, group string) (*layout, error) {
	var ps redeliver.Problems
	kafkaname.CheckTopic(&ps, "topic", topic)
	kafkaname.CheckGroup(&ps, "Group", group)
	c.cfg.Names.check(&ps, topic, group)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	existing, err := c.admin.Topics()
	if err != nil {
		return nil, err
	}
	for range 12 { // a new topic is not known to all brokers at once
		if existing[topic] != nil {
			break
		}
		<-time.After(250 * time.Millisecond)
		if existing, err = c.admin.Topics(); err != nil {
			return nil, err
		}
	}
	return c.layoutOf(topic, group, existing)
}

// layoutOf returns the layout of a subscription for the existing topics.
func (c *Client) layoutOf(topic, group string, existing map[string]*sarama.TopicMetadata) (*layout, error) {
	origin := existing[topic]
	if origin == nil {
		return nil, fmt.Errorf("kafka: topic %s does not exist: create it before you subscribe to it, or call SubscribeInitialize", topic)
	}
	policy := c.cfg.policy(topic)
	l := &layout{
		origin: topic, group: group, policy: policy, ladder: delayqueue.NewLadder(policy),
		partitions: int32(len(origin.Partitions)), maxWait: redeliver.MaxWait, fingerprint: delayqueue.Fingerprint(policy),
	}
	settings, err := c.admin.Settings(topic)
	if err != nil {
		return nil, err
	}
	if l.maxRecordBytes, err = strconv.Atoi(settings[topic]["max.message.bytes"]); err != nil {
		l.maxRecordBytes = 1 << 20
	}
	l.writable = new(atomic.Pointer[delayqueue.Ladder])
	l.addTopics(c.cfg, existing, int16(len(origin.Partitions[0].Replicas)), kafkaname.Settings(l.maxRecordBytes, c.cfg.Sarama.Producer.MaxMessageBytes, settings[topic]["min.insync.replicas"]))
	var ps redeliver.Problems
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.layouts {
		l.checkShared(&ps, other)
	}
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return l, nil
}

// addTopics adds the levels, the retry topic, the DLQ, and the levels of older policies.
func (l *layout) addTopics(cfg Config, existing map[string]*sarama.TopicMetadata, replicas int16, settings map[string]string) {
	partitions := int32(cfg.RetryPartitions)
	if partitions == 0 {
		partitions = min(l.partitions, maxOwnPartitions)
	}
	add := func(name string, k topicKind, level time.Duration, old bool) {
		partitions := partitions
		if l.policy.Order == redeliver.PerKey && k != dlqTopic {
			partitions = l.partitions // records that share a partition of the origin share one on every level
		}
		t := ownTopic{name: name, kind: k, level: level, partitions: partitions, replicas: replicas, settings: settings, old: old}
		if k == dlqTopic && cfg.DLQ.Retention > 0 {
			t.settings = maps.Clone(settings)
			t.settings["retention.ms"] = strconv.FormatInt(cfg.DLQ.Retention.Milliseconds(), 10)
		}
		t.wanted = t.partitions
		t.rung = k == delayTopic && !old && l.isRung(cfg, level)
		if m := existing[name]; m != nil {
			t.exists, t.partitions = true, int32(len(m.Partitions))
		}
		l.topics = append(l.topics, t)
	}
	for _, level := range l.ladder {
		add(cfg.Names.delay(l.origin, l.group, level), delayTopic, level, false)
	}
	add(cfg.Names.retry(l.origin, l.group), retryTopic, 0, false)
	if l.discards = cfg.DLQ.Discard; !l.discards {
		add(cfg.Names.dlq(l.origin, l.group), dlqTopic, 0, false)
	}
	for _, level := range l.otherLevels(cfg.Names, existing, l.ladder) {
		add(cfg.Names.delay(l.origin, l.group, level), delayTopic, level, true)
	}
	initial := l.initialLevels()
	l.writable.Store(&initial)
	l.state = companion(cfg.Names.dlq(l.origin, l.group)+wirename.StateSuffix, stateTopic, replicas, settings["min.insync.replicas"])
	l.state.exists = existing[l.state.name] != nil
	l.control = companion(cfg.Names.control(l.origin, l.group), controlTopic, replicas, settings["min.insync.replicas"])
	l.control.exists = existing[l.control.name] != nil
}

// partitionCount returns the number of our partitions that the policy needs, rungs included. Existing topics may have
// more from a newer configuration, which must not refuse a roll-back.
func (l *layout) partitionCount() int {
	n := 0
	for _, t := range l.topics {
		if !t.old {
			n += int(t.wanted)
		}
	}
	return n
}

// subscribed returns the topics that the group reads: the origin and all on which messages wait, except rungs that do
// not exist yet.
func (l *layout) subscribed() []string {
	names := []string{l.origin}
	for _, t := range l.topics {
		if t.waits() && (t.exists || !t.rung) {
			names = append(names, t.name)
		}
	}
	return names
}

// topicOf returns the topic of a kind and level.
func (l *layout) topicOf(k topicKind, level time.Duration) ownTopic {
	for _, t := range l.topics {
		if t.kind == k && t.level == level && !t.old {
			return t
		}
	}
	return ownTopic{}
}

// longestWait returns the longest wait that the policy plans.
func (l *layout) longestWait() time.Duration {
	delays, jitter, ok := l.policy.Delays()
	if !ok || len(delays) == 0 {
		return l.ladder[len(l.ladder)-1]
	}
	return slices.Max(delays) + jitter
}

// neededRetention returns the shortest retention that our topics may have.
func (l *layout) neededRetention() time.Duration {
	return max(minRetention, retentionFactor*l.longestWait())
}

// check refuses existing topics that cannot hold the policy. settings are the settings of the existing topics. It also
// sets maxWait.
func (l *layout) check(cfg Config, settings map[string]map[string]string) error {
	var ps redeliver.Problems
	l.warnings, l.unfit = nil, nil
	if n := l.partitionCount(); n > cfg.MaxPartitions {
		ps.Add("MaxPartitions", cfg.MaxPartitions, fmt.Sprintf("subscription %s of group %s needs %d partitions of its own; raise MaxPartitions if that is meant, or set RetryPartitions or Policy.MaxLevels", l.origin, l.group, n))
	}
	if l.policy.Order == redeliver.PerKey && cfg.RetryPartitions > 0 && int32(cfg.RetryPartitions) != l.partitions {
		ps.Add("RetryPartitions", cfg.RetryPartitions, fmt.Sprintf("must be 0, or %d, as %s has: its Order is PerKey", l.partitions, l.origin))
	}
	for i := range l.topics {
		t := &l.topics[i]
		found := &ps
		switch {
		case t.old:
			found = &l.warnings
		case t.rung:
			found = &l.unfit
		}
		if l.policy.Order == redeliver.PerKey && t.waits() && t.partitions != l.partitions {
			rule := fmt.Sprintf("must be %d, as %s has: its Order is PerKey. Raise them (kafka-topics --alter --partitions), or delete the topic when it is empty", l.partitions, l.origin)
			if t.old {
				rule += "; until then it is not read"
			}
			found.Add("topic "+t.name+" partitions", t.partitions, rule)
		}
		s, ok := settings[t.name]
		if !t.exists && cfg.NoProvisioning {
			ps.Add("topic "+t.name, "missing", fmt.Sprintf("must exist: NoProvisioning is set. Create it with partitions=%d, replicas=%d, %s", t.partitions, t.replicas, cluster.SettingsText(t.settings)))
		}
		if !ok {
			continue
		}
		before := len(*found)
		l.checkSettings(cfg, *t, s, found)
		t.unfit = t.rung && len(*found) > before
	}
	return ps.Err()
}

// checkSettings adds the problems of an existing topic's settings s to found.
func (l *layout) checkSettings(cfg Config, t ownTopic, s map[string]string, found *redeliver.Problems) {
	kafkaname.CheckSettings(found, t.name, l.origin, t.waits(), s, max(l.maxRecordBytes+limits.MaxHeaderBytes, cfg.Sarama.Producer.MaxMessageBytes))
	refuse := func(rule string) { found.Add("topic "+t.name+" retention.ms", s["retention.ms"], rule) }
	ms, err := strconv.ParseInt(s["retention.ms"], 10, 64)
	switch {
	case err != nil:
	case t.kind == dlqTopic: // the user chooses how long dead letters are kept
		if want := cfg.DLQ.Retention.Milliseconds(); want > 0 && ms != want {
			refuse(fmt.Sprintf("must be %d, as DLQ.Retention says: change one of the two", want))
		}
	case ms >= 0:
		kept := time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		if needed := l.neededRetention(); kept < needed {
			refuse(fmt.Sprintf("must be -1, or at least %d: %d times the longest wait and 7 days", (needed + time.Millisecond - 1).Milliseconds(), retentionFactor))
		} else if t.waits() && !t.old && !t.rung { // messages on a rung hop within an hour
			l.maxWait = min(l.maxWait, kept/retentionFactor)
		}
	}
}

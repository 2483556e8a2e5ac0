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
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/limits"
)

// Bounds of the retention that a delay topic must have where -1 is refused.
const (
	retentionFactor = 4
	leastRetention  = 7 * 24 * time.Hour
)

// headerRoom is what our topics take above the origin's largest record: our
// headers, and what a batch of one record adds.
const headerRoom = 64 << 10

// minSegmentBytes is the smallest segment.bytes of our topics.
const minSegmentBytes = 16 << 20

// layout is the topics of one subscription: what it needs, and what is there.
type layout struct {
	origin, group string
	policy        redeliver.Policy
	ladder        delayqueue.Ladder
	partitions    int32 // of the origin
	largest       int   // record that the origin takes, in bytes
	fingerprint   string
	topics        []ownTopic
	state         ownTopic // of who works on the DLQ; no member of the group needs it
	control       ownTopic // of commands; without it none are read
	discards      bool     // there is no DLQ
	// maxWait is the longest wait that may be asked for: what the retention of
	// the delay topics allows.
	maxWait time.Duration
	// warnings are what levels of older policies have of what the topics in use are
	// refused for, and unfit is what rungs have. A start is not refused for them: nothing is written there.
	warnings, unfit redeliver.Problems
	// reach is the part of the ladder that this process writes to: see rungs.
	reach *atomic.Pointer[delayqueue.Ladder]
}

// ownTopic is one topic of ours.
type ownTopic struct {
	name       string
	kind       kind
	level      time.Duration // of a delay topic
	partitions int32
	replicas   int16
	settings   map[string]string
	wanted     int32 // partitions that it is created with
	exists     bool
	rung       bool // is created when a wait first needs it
	unfit      bool // a rung that exists, and would lose messages
	old        bool // a level of an older policy, read until it is empty
}

type kind string

const (
	delayTopic kind = "delay"
	retryTopic kind = "retry"
	deadTopic  kind = "dlq"
	stateKind  kind = "state"
	// controlKind is the topic from which the consumers of a group read commands.
	controlKind kind = "control"
)

// waits reports whether messages wait on the topic and come back from it.
func (t ownTopic) waits() bool { return t.kind != deadTopic }

// layout asks the broker what there is and says what the subscription needs.
func (c *Client) layout(topic string) (*layout, error) {
	var ps redeliver.Problems
	checkTopic(&ps, "topic", topic)
	c.cfg.Names.check(&ps, topic, c.cfg.Group)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	there, err := c.admin.topics()
	if err != nil {
		return nil, err
	}
	for range 12 { // a topic that was created just now is not known everywhere
		if there[topic] != nil {
			break
		}
		<-time.After(250 * time.Millisecond)
		if there, err = c.admin.topics(); err != nil {
			return nil, err
		}
	}
	return c.layoutOf(topic, there)
}

// layoutOf says what the subscription needs where these topics are there.
func (c *Client) layoutOf(topic string, there map[string]*sarama.TopicMetadata) (*layout, error) {
	origin := there[topic]
	if origin == nil {
		return nil, fmt.Errorf("kafka: topic %s does not exist: create it before it is subscribed to, or call SubscribeInitialize", topic)
	}
	policy := c.cfg.policy(topic)
	l := &layout{
		origin: topic, group: c.cfg.Group, policy: policy, ladder: delayqueue.NewLadder(policy),
		partitions: int32(len(origin.Partitions)), maxWait: redeliver.MaxWait, fingerprint: delayqueue.Fingerprint(policy),
	}
	settings, err := c.admin.settings(topic)
	if err != nil {
		return nil, err
	}
	if l.largest, err = strconv.Atoi(settings[topic]["max.message.bytes"]); err != nil {
		l.largest = 1 << 20
	}
	l.reach = new(atomic.Pointer[delayqueue.Ladder])
	l.need(c.cfg, there, int16(len(origin.Partitions[0].Replicas)), l.ownSettings(settings[topic]["min.insync.replicas"], c.cfg.Sarama.Producer.MaxMessageBytes))
	var ps redeliver.Problems
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.layouts {
		l.apart(&ps, other)
	}
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return l, nil
}

// need lists the topics: the levels, the way back, the DLQ, and the levels that
// an older policy left behind.
func (l *layout) need(cfg Config, there map[string]*sarama.TopicMetadata, replicas int16, settings map[string]string) {
	partitions := int32(cfg.RetryPartitions)
	if partitions == 0 {
		partitions = min(l.partitions, maxOwnPartitions)
	}
	add := func(name string, k kind, level time.Duration, old bool) {
		partitions := partitions
		if l.policy.Order == redeliver.PerKey && k != deadTopic {
			partitions = l.partitions // what shares a partition of the origin shares one on every level
		}
		t := ownTopic{name: name, kind: k, level: level, partitions: partitions, replicas: replicas, settings: settings, old: old}
		if k == deadTopic && cfg.DLQ.Retention > 0 {
			t.settings = maps.Clone(settings)
			t.settings["retention.ms"] = strconv.FormatInt(cfg.DLQ.Retention.Milliseconds(), 10)
		}
		t.wanted = t.partitions
		t.rung = k == delayTopic && !old && l.isRung(cfg, level)
		if m := there[name]; m != nil {
			t.exists, t.partitions = true, int32(len(m.Partitions))
		}
		l.topics = append(l.topics, t)
	}
	for _, level := range l.ladder {
		add(cfg.Names.delay(l.origin, l.group, level), delayTopic, level, false)
	}
	add(cfg.Names.retry(l.origin, l.group), retryTopic, 0, false)
	if l.discards = cfg.DLQ.Discard; !l.discards {
		add(cfg.Names.dlq(l.origin, l.group), deadTopic, 0, false)
	}
	for _, level := range l.otherLevels(cfg.Names, there, l.ladder) {
		add(cfg.Names.delay(l.origin, l.group, level), delayTopic, level, true)
	}
	starts := l.starts()
	l.reach.Store(&starts)
	l.state = companion(cfg.Names.dlq(l.origin, l.group)+stateSuffix, stateKind, replicas, settings["min.insync.replicas"])
	l.state.exists = there[l.state.name] != nil
	l.control = companion(cfg.Names.control(l.origin, l.group), controlKind, replicas, settings["min.insync.replicas"])
	l.control.exists = there[l.control.name] != nil
}

// ownSettings is how our topics are created, everything explicit.
func (l *layout) ownSettings(minInSync string, batch int) map[string]string {
	// The origin's limit is for batches as its producers compressed them; a record may be
	// larger on its way through here. Ours gathers up to a bound of its own, batch.
	largest := min(math.MaxInt32, max(l.largest+headerRoom, 2*l.largest, batch+headerRoom))
	s := map[string]string{
		"cleanup.policy": "delete",
		// A due time is compared with the time of the write by the same clock.
		"message.timestamp.type": "CreateTime",
		"retention.ms":           "-1", "retention.bytes": "-1",
		// The active segment is never given back: keep it small. No batch may be larger.
		"segment.bytes":                  strconv.Itoa(max(minSegmentBytes, largest)),
		"unclean.leader.election.enable": "false",
		"max.message.bytes":              strconv.Itoa(largest),
	}
	if minInSync != "" {
		s["min.insync.replicas"] = minInSync
	}
	return s
}

// count is the number of partitions of ours that the policy needs, those of rungs included. A topic that exists may have
// more, which a newer configuration gave it: a roll-back is not refused.
func (l *layout) count() int {
	n := 0
	for _, t := range l.topics {
		if !t.old {
			n += int(t.wanted)
		}
	}
	return n
}

// subscribed is the topics that the group reads: the origin and all on which
// messages wait, but for rungs that are not needed yet.
func (l *layout) subscribed() []string {
	names := []string{l.origin}
	for _, t := range l.topics {
		if t.waits() && (t.exists || !t.rung) {
			names = append(names, t.name)
		}
	}
	return names
}

// find returns the topic of a kind and level.
func (l *layout) find(k kind, level time.Duration) ownTopic {
	for _, t := range l.topics {
		if t.kind == k && t.level == level && !t.old {
			return t
		}
	}
	return ownTopic{}
}

// longestWait is the longest wait that the policy plans.
func (l *layout) longestWait() time.Duration {
	delays, jitter, ok := l.policy.Delays()
	if !ok || len(delays) == 0 {
		return l.ladder[len(l.ladder)-1]
	}
	return slices.Max(delays) + jitter
}

// neededRetention is the shortest retention that a topic of ours may have.
func (l *layout) neededRetention() time.Duration {
	return max(leastRetention, retentionFactor*l.longestWait())
}

// check refuses existing topics that cannot hold the policy. settings are those
// of the existing topics; it also learns from them how long a wait may be.
func (l *layout) check(cfg Config, settings map[string]map[string]string) error {
	var ps redeliver.Problems
	l.warnings, l.unfit = nil, nil
	if n := l.count(); n > cfg.MaxPartitions {
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
			ps.Add("topic "+t.name, "missing", fmt.Sprintf("must exist: NoProvisioning is set. Create it with %d partitions, %d replicas and %s", t.partitions, t.replicas, settingsText(t.settings)))
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

// checkSettings adds to found what is wrong with the settings s of a topic that exists.
func (l *layout) checkSettings(cfg Config, t ownTopic, s map[string]string, found *redeliver.Problems) {
	refuse := func(setting, rule string) {
		found.Add("topic "+t.name+" "+setting, s[setting], rule)
	}
	if s["cleanup.policy"] != "delete" {
		refuse("cleanup.policy", "must be delete: compaction would remove messages that wait")
	}
	if by := s["message.timestamp.type"]; t.waits() && by != "CreateTime" && by != "" {
		refuse("message.timestamp.type", "must be CreateTime: a due time is compared with the time of the write by the writer's clock")
	}
	if bytes := s["retention.bytes"]; bytes != "-1" && bytes != "" {
		refuse("retention.bytes", "must be -1: a full topic would drop messages that wait")
	}
	ms, err := strconv.ParseInt(s["retention.ms"], 10, 64)
	switch {
	case err != nil:
	case t.kind == deadTopic: // how long a dead letter is kept is the user's choice
		if want := cfg.DLQ.Retention.Milliseconds(); want > 0 && ms != want {
			refuse("retention.ms", fmt.Sprintf("must be %d, as DLQ.Retention says: change one of the two", want))
		}
	case ms >= 0:
		kept := time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		if needed := l.neededRetention(); kept < needed {
			refuse("retention.ms", fmt.Sprintf("must be -1, or at least %d: %d times the longest wait and 7 days", (needed+time.Millisecond-1).Milliseconds(), retentionFactor))
		} else if t.waits() && !t.old && !t.rung { // what waits on a rung hops after an hour
			l.maxWait = min(l.maxWait, kept/retentionFactor)
		}
	}
	needed := min(math.MaxInt32, max(l.largest+limits.MaxHeaderBytes, cfg.Sarama.Producer.MaxMessageBytes))
	for _, setting := range []string{"max.message.bytes", "segment.bytes"} {
		if have, err := strconv.Atoi(s[setting]); err == nil && have < needed {
			refuse(setting, fmt.Sprintf("must be at least %d: the largest record of %s and our headers, and a batch of our producer", needed, l.origin))
		}
	}
}

func settingsText(s map[string]string) string {
	var text string
	for _, k := range slices.Sorted(maps.Keys(s)) {
		if text != "" {
			text += ", "
		}
		text += k + "=" + s[k]
	}
	return text
}

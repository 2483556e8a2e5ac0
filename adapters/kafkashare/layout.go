package kafkashare

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wirename"
)

const (
	// headerRoom is how much larger than the origin's records ours may be, because of our headers and of a batch with
	// one record.
	headerRoom      = 64 << 10
	minSegmentBytes = 16 << 20

	// slack is how much longer a level may be than the wait that is put on it. Its reader lets each record go when it is
	// due.
	slack = 100 * time.Millisecond
)

// layout has the topics of one subscription. Their names are those of adapters/kafka, so that the command and the
// console find its DLQ.
type layout struct {
	origin, group string
	policy        redeliver.Policy
	fingerprint   string
	ladder        delayqueue.Ladder
	retry, dlq    string
	partitions    map[string]int32 // of our topics
	writer        *kgo.Client      // writes to our topics
}

func dlqName(topic, group string) string { return kafkaname.Base(topic, group) + wirename.DLQSuffix }

func newLayout(cfg *Config, topic string) *layout {
	p := cfg.policy(topic)
	return &layout{
		origin: topic, group: cfg.Group, policy: p, fingerprint: delayqueue.Fingerprint(p), ladder: delayqueue.NewLadder(p),
		retry: kafkaname.Base(topic, cfg.Group) + wirename.RetrySuffix, dlq: dlqName(topic, cfg.Group),
	}
}

// delay returns the name of a level's topic.
func (l *layout) delay(level time.Duration) string {
	return l.retry + "." + delayqueue.LevelName(level)
}

// level returns the level of a topic on which messages wait; 0 for the way back.
func (l *layout) level(topic string) (level time.Duration, ok bool) {
	if topic == l.retry {
		return 0, true
	}
	suffix, found := strings.CutPrefix(topic, l.retry+".")
	if !found {
		return 0, false
	}
	return delayqueue.ParseLevel(suffix)
}

// waiting is a regular expression for the topics on which messages wait. It finds the levels of older and newer
// policies, too.
func (l *layout) waiting() string {
	return "^" + regexp.QuoteMeta(l.retry) + `(\.([0-9.]+(h|m|s|ms))+)?$`
}

// topicFor returns the topic on which a message waits from now until due.
func (l *layout) topicFor(due, now time.Time) string {
	if level, ok := l.ladder.Next(due.Sub(now), slack); ok {
		return l.delay(level)
	}
	return l.retry
}

// topics returns our topics.
func (l *layout) topics() []string {
	all := []string{l.retry, l.dlq}
	for _, level := range l.ladder {
		all = append(all, l.delay(level))
	}
	return all
}

// readyLayout returns the layout of a topic after it has created or checked its topics.
func (c *Client) readyLayout(ctx context.Context, topic string) (*layout, error) {
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
	var ps redeliver.Problems
	if kafkaname.CheckTopic(&ps, "topic", topic); ps != nil {
		return nil, fmt.Errorf("kafkashare: %w", ps.Err())
	}
	l = newLayout(&c.cfg, topic)
	if err := c.provision(ctx, l); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.layouts[topic] = l
	return l, nil
}

// provision creates the topics that are missing, and refuses existing ones that would lose messages.
func (c *Client) provision(ctx context.Context, l *layout) error {
	found, err := c.admin.awaitLeaders(ctx, l.origin)
	if err != nil {
		return fmt.Errorf("%w; create %s before it is subscribed to", err, l.origin)
	}
	origin := found[l.origin]
	settings, err := c.admin.settings(ctx, kmsg.ConfigResourceTypeTopic, l.origin)
	if err != nil {
		return err
	}
	largest, err := strconv.Atoi(settings["max.message.bytes"].value)
	if err != nil {
		largest = 1 << 20
	}
	own := ownSettings(largest, settings["min.insync.replicas"].value)
	existing, _, err := c.admin.topics(ctx, l.topics()...)
	if err != nil {
		return err
	}
	var ps redeliver.Problems
	partitions, replicas := min(int32(len(origin.Partitions)), maxOwnPartitions), int16(len(origin.Partitions[0].Replicas))
	for _, name := range l.topics() {
		_, exists := existing[name]
		switch {
		case exists:
			s, err := c.admin.settings(ctx, kmsg.ConfigResourceTypeTopic, name)
			if err != nil {
				return err
			}
			l.check(&ps, name, s, largest)
		case c.cfg.NoProvisioning:
			ps.Add("topic "+name, "missing", fmt.Sprintf("must exist: NoProvisioning is set. Create it with partitions=%d, replicas=%d, %v", partitions, replicas, own))
		case ps == nil:
			if err := c.admin.create(ctx, name, partitions, replicas, own); err != nil {
				return err
			}
		}
	}
	if err := ps.Err(); err != nil {
		return fmt.Errorf("kafkashare: %w", err)
	}
	if existing, err = c.admin.awaitLeaders(ctx, l.topics()...); err != nil {
		return err
	}
	l.partitions = make(map[string]int32)
	for name, t := range existing {
		l.partitions[name] = int32(len(t.Partitions))
	}
	l.writer, err = c.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.ProducerBatchMaxBytes(int32(min(largest+headerRoom, maxWrite))))
	return err
}

// maxWrite is the largest batch of a client of franz-go.
const maxWrite = 100 << 20

// ownSettings returns the settings with which our topics are created. The origin's limit applies to batches as its
// producers compressed them, so a record may be larger here.
func ownSettings(largest int, minInSync string) map[string]string {
	room := min(math.MaxInt32, max(largest+headerRoom, 2*largest))
	s := map[string]string{
		"cleanup.policy": "delete", "message.timestamp.type": "CreateTime", "retention.ms": "-1", "retention.bytes": "-1",
		"unclean.leader.election.enable": "false", "max.message.bytes": strconv.Itoa(room),
		"segment.bytes": strconv.Itoa(max(minSegmentBytes, room)), // the active segment is never deleted, so keep it small
	}
	if minInSync != "" {
		s["min.insync.replicas"] = minInSync
	}
	return s
}

// check adds the problems of an existing topic of ours. The user chooses how long dead letters are kept.
func (l *layout) check(ps *redeliver.Problems, name string, s map[string]setting, largest int) {
	must := map[string]string{"cleanup.policy": "delete", "retention.bytes": "-1"}
	if name != l.dlq {
		must["message.timestamp.type"], must["retention.ms"] = "CreateTime", "-1"
	}
	for _, setting := range slices.Sorted(maps.Keys(must)) {
		if got := s[setting].value; got != must[setting] && got != "" {
			ps.Add("topic "+name+" "+setting, got, "must be "+must[setting]+": messages that wait would be lost, or come back at a wrong time")
		}
	}
	needed := min(math.MaxInt32, largest+limits.MaxHeaderBytes)
	if have, err := strconv.Atoi(s["max.message.bytes"].value); err == nil && have < needed {
		ps.Add("topic "+name+" max.message.bytes", have, fmt.Sprintf("must be at least %d: the largest record of %s and our headers", needed, l.origin))
	}
}

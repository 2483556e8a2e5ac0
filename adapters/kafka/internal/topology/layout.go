// Package topology has the topics of a subscription: their names and settings, which of them exist, whether these can
// hold the policy, and the levels that a running member reads and may write to.
//
// A [Layout] lists them for one topic and group. A [Provisioner] makes layouts, and creates and verifies their topics.
// A [Keeper] does so for a running member.
package topology

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
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/internal/wirename"
)

// Bounds of a delay topic's retention if the broker refuses -1.
const (
	retentionFactor = 4
	minRetention    = 7 * 24 * time.Hour
)

// maxOwnPartitions bounds the partitions of each of our topics, unless Config.RetryPartitions is set.
const maxOwnPartitions = 8

// Config is the configuration of our topics, see kafka.Config.
type Config struct {
	Names           Names
	RetryPartitions int
	MaxPartitions   int
	NoProvisioning  bool
	DLQ             deadletter.Config
	MaxMessageBytes int // of our producer's batches
}

// Layout has the topics of one subscription: the ones that it needs and the ones that exist.
type Layout struct {
	Origin, Group  string
	Policy         redeliver.Policy
	Ladder         delayqueue.Ladder
	Partitions     int32 // of the origin
	MaxRecordBytes int   // largest record of the origin
	Fingerprint    string
	Topics         []Topic
	State          Topic // topic for work on the DLQ; members do not need it
	Control        Topic // topic of commands; members do not need it
	Discards       bool  // there is no DLQ
	// MaxWait is the longest wait that may be asked for. It depends on the retention of the delay topics.
	MaxWait time.Duration
	// Warnings are problems of levels of older policies, and Unfit are problems of rungs. They do not refuse a start,
	// because nothing is written there.
	Warnings, Unfit check.Problems
	// Wishes describe wished settings that existing topics do not have. They refuse nothing.
	Wishes []string
	// writable has the levels that this process writes to, see rungs.go.
	writable *atomic.Pointer[delayqueue.Ladder]
}

// Topic is one topic of redeliver.
type Topic struct {
	Name       string
	Kind       Kind
	Level      time.Duration // of a delay topic
	Partitions int32
	Replicas   int16
	Settings   map[string]string
	Exists     bool
	Rung       bool // created when a wait first needs it
	Unfit      bool // a rung that exists but would lose messages
	Old        bool // a level of an older policy, read until it is empty

	wanted     int32         // partitions with which it is created
	kept       time.Duration // the shortest retention that will do
	batchBytes int           // the largest batch that it must take
}

// Kind is the purpose of a topic.
type Kind string

// The kinds.
const (
	Delay   Kind = "delay"
	Retry   Kind = "retry"
	DLQ     Kind = "dlq"
	State   Kind = "state"
	Control Kind = "control"
)

// spec returns how the topic is created.
func (t Topic) spec() cluster.Topic {
	return cluster.Topic{Name: t.Name, Partitions: t.Partitions, Replicas: t.Replicas, Settings: t.Settings, Kept: t.kept, BatchBytes: t.batchBytes}
}

// Waits reports whether messages wait on the topic and come back from it.
func (t Topic) Waits() bool { return t.Kind != DLQ }

// waits reports whether messages wait on a topic of ours.
func (l *Layout) waits(name string) bool {
	return slices.ContainsFunc(l.Topics, func(t Topic) bool { return t.Name == name && t.Waits() })
}

// addTopics adds the levels, the retry topic, the DLQ, and the levels of older policies.
func (l *Layout) addTopics(cfg Config, existing map[string]*sarama.TopicMetadata, replicas int16, settings map[string]string) {
	partitions := int32(cfg.RetryPartitions)
	if partitions == 0 {
		partitions = min(l.Partitions, maxOwnPartitions)
	}
	add := func(name string, k Kind, level time.Duration, old bool) {
		partitions := partitions
		if l.isPerKey() && k != DLQ {
			partitions = l.Partitions // records that share a partition of the origin share one on every level
		}
		t := Topic{Name: name, Kind: k, Level: level, Partitions: partitions, Replicas: replicas, Settings: settings, Old: old, kept: l.neededRetention(), batchBytes: l.batchBytes(cfg)}
		if k == DLQ && cfg.DLQ.Retention > 0 {
			t.Settings = maps.Clone(settings)
			t.Settings["retention.ms"] = strconv.FormatInt(cfg.DLQ.Retention.Milliseconds(), 10)
		}
		t.wanted = t.Partitions
		t.Rung = k == Delay && !old && l.isRung(cfg, level)
		if m := existing[name]; m != nil {
			t.Exists, t.Partitions = true, int32(len(m.Partitions))
		}
		l.Topics = append(l.Topics, t)
	}
	for _, level := range l.Ladder {
		add(cfg.Names.DelayTopic(l.Origin, l.Group, level), Delay, level, false)
	}
	add(cfg.Names.RetryTopic(l.Origin, l.Group), Retry, 0, false)
	if l.Discards = cfg.DLQ.Discard; !l.Discards {
		add(cfg.Names.DLQTopic(l.Origin, l.Group), DLQ, 0, false)
	}
	for _, level := range l.otherLevels(cfg.Names, existing, l.Ladder) {
		add(cfg.Names.DelayTopic(l.Origin, l.Group, level), Delay, level, true)
	}
	initial := l.initialLevels()
	l.writable.Store(&initial)
	l.State = companion(cfg.Names.DLQTopic(l.Origin, l.Group)+wirename.StateSuffix, State, replicas, settings["min.insync.replicas"])
	l.State.Exists = existing[l.State.Name] != nil
	l.Control = companion(cfg.Names.ControlTopic(l.Origin, l.Group), Control, replicas, settings["min.insync.replicas"])
	l.Control.Exists = existing[l.Control.Name] != nil
}

func (l *Layout) isPerKey() bool { return l.Policy.Order == redeliver.OrderThroughRetries }

// partitionCount returns the number of our partitions that the policy needs, rungs included. Existing topics may have
// more from a newer configuration, which must not refuse a roll-back.
func (l *Layout) partitionCount() int {
	n := 0
	for _, t := range l.Topics {
		if !t.Old {
			n += int(t.wanted)
		}
	}
	return n
}

// subscribed returns the topics that the group reads: the origin and all on which messages wait, except rungs that do
// not exist yet.
func (l *Layout) subscribed() []string {
	return append(l.names(func(t Topic) bool { return t.Waits() && (t.Exists || !t.Rung) }), l.Origin)
}

// names returns the names of the topics for which wanted reports true.
func (l *Layout) names(wanted func(Topic) bool) (names []string) {
	for _, t := range l.Topics {
		if wanted(t) {
			names = append(names, t.Name)
		}
	}
	return names
}

// TopicOf returns the topic of a kind and level.
func (l *Layout) TopicOf(k Kind, level time.Duration) Topic {
	for _, t := range l.Topics {
		if t.Kind == k && t.Level == level && !t.Old {
			return t
		}
	}
	return Topic{}
}

// longestWait returns the longest wait that the policy plans.
func (l *Layout) longestWait() time.Duration {
	if longest := l.Policy.LongestDelays(); len(longest) > 0 {
		return slices.Max(longest)
	}
	return l.Ladder[len(l.Ladder)-1]
}

// batchBytes returns the size of the largest batch that our topics must take.
func (l *Layout) batchBytes(cfg Config) int {
	return min(math.MaxInt32, max(l.MaxRecordBytes+limits.MaxHeaderBytes, cfg.MaxMessageBytes))
}

// neededRetention returns the shortest retention that our topics may have.
func (l *Layout) neededRetention() time.Duration {
	return max(minRetention, retentionFactor*l.longestWait())
}

// check refuses existing topics that cannot hold the policy. settings has the settings of the existing topics. check
// also sets MaxWait.
func (l *Layout) check(cfg Config, settings map[string]map[string]string) error {
	var ps check.Problems
	l.Warnings, l.Unfit, l.Wishes = nil, nil, nil
	if n := l.partitionCount(); n > cfg.MaxPartitions {
		fewer := "RetryPartitions or Policy.MaxLevels"
		if l.isPerKey() { // it needs as many partitions as the origin has
			fewer = "Policy.MaxLevels"
		}
		ps.Add("MaxPartitions", cfg.MaxPartitions, fmt.Sprintf("subscription %s of group %s needs %d partitions of its own; raise MaxPartitions if that is meant, or set %s", l.Origin, l.Group, n, fewer))
	}
	if l.isPerKey() && cfg.RetryPartitions > 0 && int32(cfg.RetryPartitions) != l.Partitions {
		ps.Add("RetryPartitions", cfg.RetryPartitions, fmt.Sprintf("must be 0, or %d, as %s has: its Order is OrderThroughRetries", l.Partitions, l.Origin))
	}
	for i := range l.Topics {
		t := &l.Topics[i]
		found := &ps
		switch {
		case t.Old:
			found = &l.Warnings
		case t.Rung:
			found = &l.Unfit
		}
		if l.isPerKey() && t.Waits() && t.Partitions != l.Partitions {
			rule := fmt.Sprintf("must be %d, as %s has: its Order is OrderThroughRetries. %s", l.Partitions, l.Origin, equalizeHint(int(t.Partitions), int(l.Partitions)))
			if t.Old {
				rule += "; until then it is not read"
			}
			found.Add("topic "+t.Name+" partitions", t.Partitions, rule)
		}
		s, ok := settings[t.Name]
		if !t.Exists && cfg.NoProvisioning {
			rules.AddMissing(&ps, "topic", t.Name, fmt.Sprintf("Create it with %s", t.spec()))
		}
		if !ok {
			continue
		}
		before := len(*found)
		l.checkSettings(cfg, *t, s, found)
		if !t.Old {
			l.Wishes = append(l.Wishes, kafkaname.Wishes(t.Name, t.Settings, s)...)
		}
		t.Unfit = t.Rung && len(*found) > before
	}
	return ps.Err()
}

// checkSettings adds the problems of an existing topic's settings s to found.
func (l *Layout) checkSettings(cfg Config, t Topic, s map[string]string, found *check.Problems) {
	kafkaname.CheckSettings(found, t.Name, l.Origin, t.Waits(), t.Settings, s, l.batchBytes(cfg))
	refuse := func(rule, value string) {
		kafkaname.Refuse(found, t.Name, "retention.ms", s["retention.ms"], rule, value)
	}
	ms, err := strconv.ParseInt(s["retention.ms"], 10, 64)
	switch {
	case err != nil:
	case t.Kind == DLQ: // the user chooses how long dead letters are kept
		if want := cfg.DLQ.Retention.Milliseconds(); want > 0 && ms != want {
			refuse(fmt.Sprintf("must be %d, as DLQ.Retention says: change one of the two", want), strconv.FormatInt(want, 10))
		}
	case ms >= 0:
		kept := time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		if needed := l.neededRetention(); kept < needed {
			refuse(fmt.Sprintf("must be -1, or at least %d: %d times the longest wait and 7 days", (needed+time.Millisecond-1).Milliseconds(), retentionFactor), "-1")
		} else if t.Waits() && !t.Old && !t.Rung { // messages on a rung hop within an hour
			l.MaxWait = min(l.MaxWait, kept/retentionFactor)
		}
	}
}

// slack is how much longer than a wait its level may be. The extra time costs no lateness, because a delay topic
// releases each record when it is due.
const slack = 100 * time.Millisecond

// TopicFor returns the topic on which a message waits from now until due. needsRung reports whether the message belongs
// on a rung that takes no writes yet, and must hop from topic's shorter level.
func (l *Layout) TopicFor(due, now time.Time) (topic string, needsRung bool) {
	wait := due.Sub(now)
	level, ok := l.writable.Load().Next(wait, slack)
	if !ok {
		return l.TopicOf(Retry, 0).Name, false
	}
	longest, _ := l.Ladder.Next(wait, slack)
	return l.TopicOf(Delay, level).Name, level < longest
}

// initialLevels returns the ladder without the rungs: the levels that exist from the start.
func (l *Layout) initialLevels() delayqueue.Ladder {
	initial := make(delayqueue.Ladder, 0, len(l.Ladder))
	for _, t := range l.Topics {
		if t.Kind == Delay && !t.Old && !t.Rung {
			initial = append(initial, t.Level)
		}
	}
	return initial
}

// otherLevels returns existing levels that are not in known, ascending.
func (l *Layout) otherLevels(names Names, existing map[string]*sarama.TopicMetadata, known delayqueue.Ladder) []time.Duration {
	var others []time.Duration
	for name := range existing {
		if level, ok := names.Level(l.Origin, l.Group, name); ok && !slices.Contains(known, level) {
			others = append(others, level)
		}
	}
	slices.Sort(others)
	return others
}

// AdoptLevels replaces the policy by one with the existing levels.
func (l *Layout) AdoptLevels() {
	l.Topics = slices.DeleteFunc(l.Topics, func(t Topic) bool { return t.Kind == Delay && !t.Exists })
	l.Ladder = nil
	for i := range l.Topics {
		l.Topics[i].Old, l.Topics[i].Rung = false, false
		if l.Topics[i].Kind == Delay {
			l.Ladder = append(l.Ladder, l.Topics[i].Level)
		}
	}
	slices.Sort(l.Ladder)
	l.Policy = redeliver.Policy{MaxRetries: redeliver.NoRetries}
	if len(l.Ladder) > 0 {
		l.Policy = redeliver.Policy{MaxRetries: len(l.Ladder), Backoff: redeliver.Steps(l.Ladder...)}
	}
	l.Policy = l.Policy.WithDefaults()
}

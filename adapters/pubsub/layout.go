package pubsub

import (
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/rules"
)

// delayTopics is the number of delay topics of a subscription under any policy. A Watermill Pub/Sub cannot list
// topics. If their names contained the level, nothing would read the topics of an older policy. So the names have numbers, all
// topics are always read, and each record says when it may leave.
const delayTopics = 8

// levelSlack is how much longer than a wait its level may be. A message leaves when it is due, so this adds no
// lateness.
const levelSlack = 100 * time.Millisecond

// layout is a subscription: its policy and its topics.
type layout struct {
	topic, group string
	policy       redeliver.Policy
	fingerprint  string
	ladder       delayqueue.Ladder
	retry, dlq   string
	delays       [delayTopics]string
}

func newLayout(cfg *Config, topic string) (*layout, error) {
	p := cfg.policy(topic)
	l := &layout{
		topic: topic, group: cfg.Group, policy: p, fingerprint: delayqueue.Fingerprint(p), ladder: newLadder(p, cfg.MaxUnacked),
		retry: cfg.Names.retry(topic, cfg.Group), dlq: cfg.Names.dlq(topic, cfg.Group),
	}
	for i := range l.delays {
		l.delays[i] = cfg.Names.delay(topic, cfg.Group, i+1)
	}
	var ps check.Problems
	if slices.Contains(append(l.ownTopics(), topic), "") {
		rules.RefuseName(&ps, "topic", "Names", "")
	}
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	return l, nil
}

// ownTopics returns the topics that only redeliver writes.
func (l *layout) ownTopics() []string { return append(l.delays[:], l.retry, l.dlq) }

// Places returns the names of the subscription's topics.
func (l *layout) Places() engine.Places {
	return engine.Places{Origin: l.topic, DLQ: l.dlq, Own: append(l.delays[:], l.retry)}
}

// newLadder returns the policy's ladder without levels above a third of maxUnacked. A message may stay for its level
// and a rest on the same topic, and must then be written while it is still unacked. Longer waits take several hops.
func newLadder(p redeliver.Policy, maxUnacked time.Duration) delayqueue.Ladder {
	all := delayqueue.NewLadder(p)
	if maxUnacked == NoLimit {
		return all
	}
	maxLevel := max(time.Millisecond, (maxUnacked / 3).Truncate(time.Millisecond))
	kept := slices.DeleteFunc(slices.Clone(all), func(d time.Duration) bool { return d > maxLevel })
	if len(kept) < len(all) && (len(kept) == 0 || kept[len(kept)-1] < maxLevel) {
		kept = append(kept, maxLevel)
	}
	return kept
}

// nextTopic returns the next topic of a message, and when the message leaves that topic. The topic is the retry topic
// if the message is due now, otherwise the delay topic of the largest level that fits, or the first one if none fits.
func (l *layout) nextTopic(due, now time.Time) (where string, until time.Time) {
	left := due.Sub(now)
	if left <= 0 {
		return l.retry, time.Time{}
	}
	nth := 0
	if level, ok := l.ladder.Next(left, levelSlack); ok {
		nth = slices.Index(l.ladder, level)
	}
	until = now.Add(l.ladder[nth])
	if due.Sub(until) < l.ladder[0] { // no further hop: the rest is spent on the same topic
		until = due
	}
	return l.delays[nth], limits.CeilMilli(until)
}

// levelOf returns how long a record without a due time waits on the nth delay topic, counted from 0: the level, or, if
// the policy has none, the argument longer, at most the longest level.
func (l *layout) levelOf(nth int, longer time.Duration) time.Duration {
	if nth < len(l.ladder) {
		return l.ladder[nth]
	}
	return min(max(0, longer), l.ladder[len(l.ladder)-1])
}

// maxStay returns the longest stay of a record on the nth level, counted from 0: the level and a rest below the first
// level.
func (l *layout) maxStay(nth int) time.Duration { return l.ladder[nth] + l.ladder[0] }

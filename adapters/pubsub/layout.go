package pubsub

import (
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// delayTopics is how many delay topics a subscription has, whatever its policy. A
// Watermill Pub/Sub cannot list topics: if they were called after their levels,
// those of an older policy could not be found, and what waits there would be
// stranded. So their names are numbers, all are always read, and each record says
// itself when it may go on.
const delayTopics = 8

// levelSlack is how much longer a level may be than the wait that is put on it. What
// waits is let go when it is due, so it costs no lateness.
const levelSlack = 100 * time.Millisecond

// layout is a subscription: its policy, and its topics.
type layout struct {
	topic, group string
	policy       redeliver.Policy
	fingerprint  string // of the policy
	ladder       delayqueue.Ladder
	back, dlq    string
	delays       [delayTopics]string
}

func newLayout(cfg *Config, topic string) (*layout, error) {
	p := cfg.policy(topic)
	l := &layout{
		topic: topic, group: cfg.Group, policy: p, fingerprint: delayqueue.Fingerprint(p), ladder: newLadder(p, cfg.MaxUnacked),
		back: cfg.Names.retry(topic, cfg.Group), dlq: cfg.Names.dlq(topic, cfg.Group),
	}
	for i := range l.delays {
		l.delays[i] = cfg.Names.delay(topic, cfg.Group, i+1)
	}
	all := append(l.ownTopics(), topic)
	slices.Sort(all)
	var ps redeliver.Problems
	for i, name := range all {
		if name == "" {
			ps.Add("Names", `""`, "must be the name of a topic")
		} else if i > 0 && name == all[i-1] {
			ps.Add("Names", name, "must differ for the way back, the DLQ and the topic itself")
		}
	}
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	return l, nil
}

// ownTopics are the topics that redeliver writes.
func (l *layout) ownTopics() []string { return append(l.delays[:], l.back, l.dlq) }

// checkDistinct refuses names that another subscription of the client has already.
func (l *layout) checkDistinct(other *layout) error {
	var ps redeliver.Problems
	for _, name := range l.ownTopics() {
		if slices.Contains(append(other.ownTopics(), other.topic), name) {
			ps.Add("Names", name, fmt.Sprintf("must differ for every topic: %s and %s would share it", other.topic, l.topic))
		}
	}
	if err := ps.Err(); err != nil {
		return fmt.Errorf("pubsub: %w", err)
	}
	return nil
}

// newLadder is the policy's ladder, without rungs on which a message might be
// unacked for longer than the subscriber leaves it here: a third of that, because
// a rest may be waited for in the same place, and then it is to be written. A wait
// that is longer is several hops.
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

// nextTopic says where a message waits now that is due at due, and until when: on the
// way back at once, on the delay topic of the largest level that fits, or, for a
// rest that is shorter than all of them, on the first one until it is due.
func (l *layout) nextTopic(due, now time.Time) (where string, until time.Time) {
	left := due.Sub(now)
	if left <= 0 {
		return l.back, time.Time{}
	}
	nth := 0
	if level, ok := l.ladder.Next(left, levelSlack); ok {
		nth = slices.Index(l.ladder, level)
	}
	until = now.Add(l.ladder[nth])
	if due.Sub(until) < l.ladder[0] { // no other hop: what is left is waited for in the same place
		until = due
	}
	return l.delays[nth], redeliver.CeilMilli(until)
}

// levelOf is what a record waits for on the nth delay topic that has lost when it is
// due. Where the policy has no such level, the record's own word is taken of how much
// longer it stays there, up to the longest level.
func (l *layout) levelOf(nth int, longer time.Duration) time.Duration {
	if nth < len(l.ladder) {
		return l.ladder[nth]
	}
	return min(max(0, longer), l.ladder[len(l.ladder)-1])
}

// maxStay is the longest that a record is to stay on the nth delay topic, counted
// from 0: its level, and a rest that no level fits.
func (l *layout) maxStay(nth int) time.Duration {
	if nth >= len(l.ladder) {
		return 0
	}
	return l.ladder[nth] + l.ladder[0]
}

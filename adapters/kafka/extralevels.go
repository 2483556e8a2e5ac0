package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/delayqueue"
)

// extraLevels are the levels that a reader reads beside its initial ones: rungs, and levels of other policies. They
// come and go: the first long wait creates the rungs, a deploy that is rolled back leaves levels that only newer
// members knew, and empty levels are deleted.
type extraLevels struct {
	mu         sync.Mutex
	present    []time.Duration    // existing ones, ascending
	missing    []string           // missing topics among the initial ones
	endSession context.CancelFunc // ends the session, so that the next one reads the present levels
	session    []time.Duration    // rungs that the session reads
	unfit      []time.Duration    // rungs whose settings would lose messages
	recheck    atomic.Bool        // topics or policies may have changed: the next sweep checks
}

// otherLevels returns existing levels that are not in known, ascending.
func (l *layout) otherLevels(names Names, existing map[string]*sarama.TopicMetadata, known delayqueue.Ladder) []time.Duration {
	var others []time.Duration
	for name := range existing {
		if level, ok := names.level(l.origin, l.group, name); ok && !slices.Contains(known, level) {
			others = append(others, level)
		}
	}
	slices.SortFunc(others, cmp.Compare)
	return others
}

// checkTopics creates our deleted topics again, makes the reader join again if the levels have changed, and returns all
// topics. It changes nothing if the cluster does not answer.
func (r *reader) checkTopics() (map[string]*sarama.TopicMetadata, error) {
	existing, err := r.client.admin.Topics()
	if err == nil && existing[r.layout.origin] == nil { // the broker does not know all topics yet
		err = fmt.Errorf("kafka: listing topics: %s does not exist", r.layout.origin)
	}
	if err != nil {
		return nil, err
	}
	existing, missing, err := r.restore(existing)
	if err != nil {
		return nil, err
	}
	x := &r.extra
	if len(missing) > 0 {
		x.recheck.Store(true) // the next sweep looks for them again
	}
	found := r.keepEqualPartitions(r.layout.otherLevels(r.client.cfg.Names, existing, r.layout.initialLevels()), existing)
	x.mu.Lock()
	defer x.mu.Unlock()
	if slices.Equal(found, x.present) && slices.Equal(missing, x.missing) {
		return existing, nil
	}
	x.present, x.missing = found, missing
	r.updateWritableLocked()
	x.rejoinLocked()
	return existing, nil
}

// rejoin ends the session, if there is one, and with it those of all members.
func (x *extraLevels) rejoin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rejoinLocked()
}

func (x *extraLevels) rejoinLocked() {
	if x.endSession != nil {
		x.endSession()
	}
}

// keepEqualPartitions drops and reports levels with another number of partitions than the origin if the order is
// PerKey.
func (r *reader) keepEqualPartitions(levels []time.Duration, existing map[string]*sarama.TopicMetadata) []time.Duration {
	if !r.perKey() {
		return levels
	}
	origin := r.layout.origin
	want := len(existing[origin].Partitions)
	return slices.DeleteFunc(levels, func(level time.Duration) bool {
		name := r.client.cfg.Names.delay(origin, r.layout.group, level)
		n := len(existing[name].Partitions)
		if n != want {
			r.reportUnread(name, 0, "", unequalPartitions(name, n, origin, want))
		}
		return n != want
	})
}

// consume takes part in the group for one session.
func (r *reader) consume(ctx context.Context) error {
	ctx, endSession := context.WithCancel(ctx)
	defer endSession()
	s := &session{reader: r, commits: newCommitter(r, false)}
	err := r.group.Consume(ctx, r.prepareSession(endSession), s)
	// A follower that joins again in an unchanged group keeps its generation, so late commits of the last session are
	// not fenced. They are fenced after the session timeout, because nobody sent heartbeats.
	fenced, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.fencingDelay())
	defer cancel()
	s.commits.stop(fenced)
	if errors.Is(err, context.Canceled) {
		return nil // the session ended while it joined
	}
	return err
}

// prepareSession returns the topics of the next session. No lane runs while it is called.
func (r *reader) prepareSession(endSession context.CancelFunc) (names []string) {
	r.setEndSession(endSession)
	r.findRungs()
	names, r.levels = r.subscription()
	return names
}

// setEndSession sets the function that ends the session.
func (r *reader) setEndSession(endSession context.CancelFunc) {
	r.extra.mu.Lock()
	defer r.extra.mu.Unlock()
	r.extra.endSession = endSession
}

// subscription returns the topics to read now: the origin, and the topics on which messages wait.
func (r *reader) subscription() (names []string, levels map[string]waitLevel) {
	r.extra.mu.Lock()
	extra, missing := r.extra.present, r.extra.missing
	r.extra.mu.Unlock()
	names = []string{r.layout.origin}
	levels = make(map[string]waitLevel)
	add := func(name string, level time.Duration) {
		names = append(names, name)
		levels[name] = waitLevel{level}
	}
	for _, t := range r.layout.topics {
		if t.waits() && !t.old && !t.rung && !slices.Contains(missing, t.name) {
			add(t.name, t.level)
		}
	}
	for _, level := range extra {
		add(r.client.cfg.Names.delay(r.layout.origin, r.layout.group, level), level)
	}
	return names, levels
}

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

// extraLevels are the levels that a reader reads beside those with which it starts: rungs, and the levels of other policies.
// They come and go while it runs: a rung is created with the first wait that needs it, a deploy that is rolled back leaves
// levels that only the newer members knew, and levels that are empty are deleted.
type extraLevels struct {
	mu         sync.Mutex
	present    []time.Duration    // those that are there, ascending
	missing    []string           // of the topics with which it starts
	endSession context.CancelFunc // ends the session, so that the next one reads what is there now
	session    []time.Duration    // rungs that the session reads
	unfit      []time.Duration    // rungs whose settings would lose messages
	recheck    atomic.Bool        // since the last look topics or policies may have changed: the next sweep looks
}

// otherLevels finds the levels that stand beside known ones, ascending.
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

// look creates topics of ours again that somebody deleted, has the reader join the group
// anew when the levels are not those that it reads, and returns all topics. A cluster that does not answer changes nothing.
func (r *reader) checkTopics() (map[string]*sarama.TopicMetadata, error) {
	existing, err := r.client.admin.topics()
	if err == nil && existing[r.layout.origin] == nil { // it does not know all of them yet
		err = fmt.Errorf("kafka: listing topics: %s is not there", r.layout.origin)
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
		x.recheck.Store(true) // they are looked for at the next sweep again
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

// joinAnew ends the session, if there is one, and with it those of all members.
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

// readable leaves out, and reports, levels with which the order of keys could not be
// kept: they have another number of partitions than the origin.
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
	// A follower that joins again while the group is as it was keeps its generation, which fences nothing of the last
	// session. What takes longer than a session is fenced: nobody has sent heartbeats meanwhile.
	fenced, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.fencingDelay())
	defer cancel()
	s.commits.stop(fenced)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // it was to join anew while it joined
	}
	return err
}

// topics says what the next session reads, which again ends. No lane runs while it is called.
func (r *reader) prepareSession(endSession context.CancelFunc) (names []string) {
	r.setEndSession(endSession)
	r.findRungs()
	names, r.levels = r.subscription()
	return names
}

// endsBy says what ends the session, to begin one that reads other levels.
func (r *reader) setEndSession(endSession context.CancelFunc) {
	r.extra.mu.Lock()
	defer r.extra.mu.Unlock()
	r.extra.endSession = endSession
}

// reads lists what is to be read now: the origin, and the topics on which messages wait.
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

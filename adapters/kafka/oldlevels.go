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
)

// oldLevels are the levels of other policies that a reader reads beside its own.
// They come and go while it runs: a deploy that is rolled back leaves levels that
// only the newer members knew, and levels that are empty are deleted.
type oldLevels struct {
	mu         sync.Mutex
	now        []time.Duration
	missing    []string           // of our own topics
	again      context.CancelFunc // ends the session, so that the next one reads what is there now
	rebalanced atomic.Bool        // since the last look: those who came or went may have another policy
}

// oldLevels finds the levels that stand beside the ladder's, ascending.
func (l *layout) oldLevels(names Names, there map[string]*sarama.TopicMetadata) []time.Duration {
	var old []time.Duration
	for name := range there {
		if level, ok := names.level(l.origin, l.group, name); ok && !slices.Contains(l.ladder, level) {
			old = append(old, level)
		}
	}
	slices.SortFunc(old, cmp.Compare)
	return old
}

// look creates topics of ours again that somebody deleted, has the reader join the group
// anew when the levels are not those that it reads, and returns all topics. A cluster that does not answer changes nothing.
func (r *reader) look() (map[string]*sarama.TopicMetadata, error) {
	there, err := r.client.admin.topics()
	if err == nil && there[r.layout.origin] == nil { // it does not know all of them yet
		err = fmt.Errorf("kafka: listing topics: %s is not there", r.layout.origin)
	}
	if err != nil {
		return nil, err
	}
	there, missing, err := r.restore(there)
	if err != nil {
		return nil, err
	}
	o := &r.old
	if len(missing) > 0 {
		o.rebalanced.Store(true) // they are looked for at the next sweep again
	}
	found := r.readable(r.layout.oldLevels(r.client.cfg.Names, there), there)
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Equal(found, o.now) && slices.Equal(missing, o.missing) {
		return there, nil
	}
	o.now, o.missing = found, missing
	o.joinAnewLocked()
	return there, nil
}

// joinAnew ends the session, if there is one, and with it those of all members.
func (o *oldLevels) joinAnew() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.joinAnewLocked()
}

func (o *oldLevels) joinAnewLocked() {
	if o.again != nil {
		o.again()
	}
}

// readable leaves out, and tells of, old levels with which the order of keys could not be
// kept: they have another number of partitions than the origin.
func (r *reader) readable(old []time.Duration, there map[string]*sarama.TopicMetadata) []time.Duration {
	if !r.perKey() {
		return old
	}
	origin := r.layout.origin
	want := len(there[origin].Partitions)
	return slices.DeleteFunc(old, func(level time.Duration) bool {
		name := r.client.cfg.Names.delay(origin, r.layout.group, level)
		n := len(there[name].Partitions)
		if n != want {
			r.tellUnread(name, 0, "", unequal(name, n, origin, want))
		}
		return n != want
	})
}

// consume takes part in the group for one session.
func (r *reader) consume(ctx context.Context) error {
	ctx, again := context.WithCancel(ctx)
	defer again()
	s := &session{reader: r, commits: newCommitter(r, false)}
	err := r.group.Consume(ctx, r.topics(again), s)
	// A follower that joins again while the group is as it was keeps its generation, which fences nothing of the last
	// session. What takes longer than a session is fenced: nobody has sent heartbeats meanwhile.
	fenced, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.fencedAfter())
	defer cancel()
	s.commits.stop(fenced)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // it was to join anew while it joined
	}
	return err
}

// topics says what the next session reads, which again ends. No lane runs while it is called.
func (r *reader) topics(again context.CancelFunc) (names []string) {
	r.endsBy(again)
	names, r.levels = r.reads()
	return names
}

// endsBy says what ends the session, to begin one that reads other levels.
func (r *reader) endsBy(again context.CancelFunc) {
	r.old.mu.Lock()
	defer r.old.mu.Unlock()
	r.old.again = again
}

// reads lists what is to be read now: the origin, and the topics on which messages wait.
func (r *reader) reads() (names []string, levels map[string]waitLevel) {
	r.old.mu.Lock()
	old, missing := r.old.now, r.old.missing
	r.old.mu.Unlock()
	names = []string{r.layout.origin}
	levels = make(map[string]waitLevel)
	add := func(name string, level time.Duration) {
		names = append(names, name)
		levels[name] = waitLevel{level}
	}
	for _, t := range r.layout.topics {
		if t.waits() && !t.old && !slices.Contains(missing, t.name) {
			add(t.name, t.level)
		}
	}
	for _, level := range old {
		add(r.client.cfg.Names.delay(r.layout.origin, r.layout.group, level), level)
	}
	return names, levels
}

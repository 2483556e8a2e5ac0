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
	mu      sync.Mutex
	now     []time.Duration    // those that are there, ascending
	missing []string           // of the topics with which it starts
	again   context.CancelFunc // ends the session, so that the next one reads what is there now
	session []time.Duration    // rungs that the session reads
	unfit   []time.Duration    // rungs whose settings would lose messages
	suspect atomic.Bool        // since the last look topics or policies may have changed: the next sweep looks
}

// otherLevels finds the levels that stand beside known ones, ascending.
func (l *layout) otherLevels(names Names, there map[string]*sarama.TopicMetadata, known delayqueue.Ladder) []time.Duration {
	var others []time.Duration
	for name := range there {
		if level, ok := names.level(l.origin, l.group, name); ok && !slices.Contains(known, level) {
			others = append(others, level)
		}
	}
	slices.SortFunc(others, cmp.Compare)
	return others
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
	x := &r.extra
	if len(missing) > 0 {
		x.suspect.Store(true) // they are looked for at the next sweep again
	}
	found := r.readable(r.layout.otherLevels(r.client.cfg.Names, there, r.layout.starts()), there)
	x.mu.Lock()
	defer x.mu.Unlock()
	if slices.Equal(found, x.now) && slices.Equal(missing, x.missing) {
		return there, nil
	}
	x.now, x.missing = found, missing
	r.reachLocked()
	x.joinAnewLocked()
	return there, nil
}

// joinAnew ends the session, if there is one, and with it those of all members.
func (x *extraLevels) joinAnew() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.joinAnewLocked()
}

func (x *extraLevels) joinAnewLocked() {
	if x.again != nil {
		x.again()
	}
}

// readable leaves out, and reports, levels with which the order of keys could not be
// kept: they have another number of partitions than the origin.
func (r *reader) readable(levels []time.Duration, there map[string]*sarama.TopicMetadata) []time.Duration {
	if !r.perKey() {
		return levels
	}
	origin := r.layout.origin
	want := len(there[origin].Partitions)
	return slices.DeleteFunc(levels, func(level time.Duration) bool {
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
	r.findRungs()
	names, r.levels = r.reads()
	return names
}

// endsBy says what ends the session, to begin one that reads other levels.
func (r *reader) endsBy(again context.CancelFunc) {
	r.extra.mu.Lock()
	defer r.extra.mu.Unlock()
	r.extra.again = again
}

// reads lists what is to be read now: the origin, and the topics on which messages wait.
func (r *reader) reads() (names []string, levels map[string]waitLevel) {
	r.extra.mu.Lock()
	extra, missing := r.extra.now, r.extra.missing
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

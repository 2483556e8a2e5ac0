package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/crash"
)

const changeRunAgain = "settled messages run again"

// lastCommitTimeout bounds how long an ending lane waits for its last commit.
const lastCommitTimeout = 3 * time.Second

// committer commits what the lanes of a session have settled. It commits all changes in one request, at the configured
// interval, and at once if a lane waits for its metadata. One request runs at a time, so an earlier one never undoes
// a later one.
//
// In a service's own group (see Wrap) sarama commits: the committer marks settled offsets, and itself commits only
// metadata for which a lane waits. Meanwhile it marks nothing of that lane, so that no older commit of sarama's undoes
// its own.
type committer struct {
	admin         cluster.Admin
	group         string
	interval      time.Duration
	saramaCommits bool // sarama commits marked offsets

	mu      sync.Mutex
	sources map[*source]struct{}
	stopped bool

	urgent   chan struct{}
	stopping chan struct{} // closed by stop
	done     chan struct{} // closed when no commit is in flight any more
	running  bool
}

func newCommitter(r *reader, saramaCommits bool) *committer {
	return &committer{
		admin: r.client.admin, group: r.layout.Group, interval: r.commitInterval, saramaCommits: saramaCommits,
		sources: make(map[*source]struct{}), urgent: make(chan struct{}, 1), stopping: make(chan struct{}), done: make(chan struct{}),
	}
}

// add makes the committer commit for a source until remove.
func (c *committer) add(s *source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources[s] = struct{}{}
	if !c.running && !c.stopped {
		c.running = true
		go c.run()
	}
}

func (c *committer) remove(s *source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sources, s)
}

// commitNow makes the committer commit urgent changes at once.
func (c *committer) commitNow() {
	select {
	case c.urgent <- struct{}{}:
	default:
	}
}

// stop ends the committer and returns when no commit is in flight or ctx ends. The next session may have the same
// generation, so a late commit could undo a newer one.
func (c *committer) stop(ctx context.Context) {
	c.mu.Lock()
	if !c.stopped {
		c.stopped = true
		close(c.stopping)
	}
	running := c.running
	c.mu.Unlock()
	if !running {
		return
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	}
}

func (c *committer) run() {
	defer close(c.done)
	interval := c.interval
	if c.saramaCommits {
		interval = min(interval, 200*time.Millisecond) // sarama keeps the service's interval
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var again <-chan time.Time
	for {
		regular := false
		select {
		case <-c.stopping:
			return
		case <-c.urgent:
		case <-again:
		case <-tick.C:
			regular = true
		}
		again = nil
		if left := c.flush(regular); left {
			again = time.After(cluster.CommitRetryPause)
		}
	}
}

// flush commits urgent changes or, if regular, all changes. again reports whether to try again soon.
func (c *committer) flush(regular bool) (again bool) {
	c.mu.Lock()
	sources := make([]*source, 0, len(c.sources))
	for s := range c.sources {
		sources = append(sources, s)
	}
	c.mu.Unlock()
	var all []*snapshot
	var reqs []cluster.OffsetCommit
	var sess sarama.ConsumerGroupSession
	for _, s := range sources {
		snap := takeSnapshot(s, regular)
		switch {
		case snap == nil:
		case c.saramaCommits && snap.note.Idle:
			// MarkOffset ignores the metadata of a marked offset, so ResetOffset sets it.
			s.session.MarkOffset(s.topic, s.partition, snap.offset, snap.note.Text)
			s.session.ResetOffset(s.topic, s.partition, snap.offset, snap.note.Text)
			snap.apply(nil)
		default:
			sess = s.session
			all, reqs = append(all, snap), append(reqs, cluster.OffsetCommit{Topic: s.topic, Partition: s.partition, Offset: snap.offset, Metadata: snap.note.Text})
		}
	}
	if len(all) == 0 {
		return false
	}
	for i, err := range c.admin.Commit(c.group, sess, reqs) {
		again = all[i].apply(err) || again
	}
	return again
}

// snapshot is a source's state at one moment.
type snapshot struct {
	s       *source
	offset  int64
	note    crash.Note
	settled int64 // messages settled since the source began
	last    bool
}

// takeSnapshot returns what to commit for a source, or nil.
func takeSnapshot(s *source, regular bool) *snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dirty || !regular && !s.urgent {
		return nil
	}
	snap := &snapshot{s: s, offset: s.track.mark, settled: s.settled, last: s.ending}
	snap.note = s.crashes.Note(snap.offset, s.track.above())
	if s.setOverflows && snap.note.Whole {
		s.lane.Post(func() {}) // the lane asks again for messages that the set held back
	}
	s.setOverflows = !snap.note.Whole
	s.dirty, s.inFlight = false, true
	return snap
}

// apply applies the result of committing a snapshot to its source. It reports whether to try again soon.
func (snap *snapshot) apply(err error) (again bool) {
	s := snap.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight, s.commitErr = false, err
	if err != nil {
		s.dirty = true
		return snap.refusedLocked(err)
	}
	s.hasCommitted, s.settledAtCommit = true, snap.settled
	if s.onLevel {
		s.r.sweeper.SetMark(s.topic, s.partition, snap.offset)
	}
	if s.crashes.Committed(snap.note) {
		s.urgent = s.ending && !snap.last
	}
	if snap.last {
		s.stopWaitingLocked()
	}
	return false
}

func (snap *snapshot) refusedLocked(err error) (again bool) {
	s := snap.s
	switch {
	case cluster.IsPermanentRefusal(err):
		if first := s.crashes.GiveUp(err); first && errors.Is(err, sarama.ErrOffsetMetadataTooLarge) {
			return true // without metadata
		}
		s.urgent = false
		s.stopWaitingLocked()
		return false
	case snap.last && (cluster.IsFenced(err) || errors.Is(err, sarama.ErrUnknownTopicOrPartition)): // a cooperative lane outlives its generation
		s.stopWaitingLocked()
		return false
	default: // the group rebalances, or its coordinator moves
		return true
	}
}

// stopWaitingLocked makes commitLast return.
func (s *source) stopWaitingLocked() {
	if s.lastCommit != nil {
		close(s.lastCommit)
		s.lastCommit = nil
	}
}

// commitLast commits the final state of a source. If that fails, it reports how many messages may run again: the
// partition's next owner does not know that they are settled.
func (c *committer) commitLast(ctx context.Context, s *source) {
	s.mu.Lock()
	s.ending = true
	if !s.dirty && !s.inFlight {
		s.mu.Unlock()
		return
	}
	lastDone := make(chan struct{})
	s.lastCommit, s.dirty, s.urgent = lastDone, true, true
	s.mu.Unlock()
	c.commitNow()
	ctx, cancel := context.WithTimeout(ctx, lastCommitTimeout)
	defer cancel()
	late := false
	select {
	case <-lastDone:
	case <-ctx.Done():
		late = true
	}
	s.mu.Lock()
	n, mark, err := s.settled-s.settledAtCommit, s.track.mark, s.commitErr
	s.lastCommit, s.dirty = nil, false
	s.mu.Unlock()
	if n == 0 {
		return
	}
	if late {
		err = errors.Join(fmt.Errorf("kafka: the broker did not accept the last commit of %s/%d within %s", s.topic, s.partition, lastCommitTimeout), err)
	}
	s.r.sub.EmitChange(changeRunAgain, fmt.Sprintf("%s/%d: up to %d messages, because the last commit, of offset %d, failed. "+
		"If that happens at every rebalance, check that members have enough CPU for their heartbeats, and that DrainTimeout is well below Sarama.Consumer.Group.Rebalance.Timeout",
		s.topic, s.partition, n, mark), err)
}

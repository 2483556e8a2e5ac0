package settle

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
)

// Committer commits what the partitions of a session have settled. It commits all changes, at the configured interval,
// and at once if a message waits for its metadata. One request runs at a time, so an earlier one never undoes a later
// one.
//
// In a service's own group (see Wrap) sarama commits what the committer marks. sarama does not say whether the broker has
// accepted a commit. So the committer itself commits metadata for which a message waits, metadata that are longer than
// any that was accepted, and something every proofInterval. Then it marks them, too, so that sarama's next commit does not undo its own.
type Committer struct {
	CommitterConfig

	mu         sync.Mutex
	partitions map[*Partition]struct{}
	stopped    bool
	running    bool

	urgent   chan struct{}
	stopping chan struct{} // closed by Stop
	done     chan struct{} // closed when no commit is in flight any more
}

// CommitterConfig says how a Committer commits.
type CommitterConfig struct {
	// Commit commits offsets of the session's group in one request. It returns the answer to each.
	Commit   func(sarama.ConsumerGroupSession, []cluster.OffsetCommit) []error
	Interval time.Duration
	// FencedAfter is how long the group accepts a session after its last heartbeat.
	FencedAfter   time.Duration
	SaramaCommits bool   // sarama commits marked offsets
	Limit         *Limit // of the metadata
}

// NewCommitter returns the committer of one session.
func NewCommitter(cfg CommitterConfig) *Committer {
	if cfg.SaramaCommits {
		cfg.Interval = min(cfg.Interval, 200*time.Millisecond) // sarama keeps the service's interval
	}
	if cfg.Limit == nil {
		cfg.Limit = new(Limit)
	}
	return &Committer{
		CommitterConfig: cfg, partitions: make(map[*Partition]struct{}),
		urgent: make(chan struct{}, 1), stopping: make(chan struct{}), done: make(chan struct{}),
	}
}

// add makes the committer commit for a partition until remove.
func (c *Committer) add(p *Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partitions[p] = struct{}{}
	if !c.running && !c.stopped {
		c.running = true
		go c.run()
	}
}

// Again makes the committer commit all partitions again, although nothing has changed.
func (c *Committer) Again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.partitions {
		p.mu.Lock()
		p.dirty = true
		p.mu.Unlock()
	}
}

func (c *Committer) remove(p *Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.partitions, p)
}

// commitNow makes the committer commit at once.
func (c *Committer) commitNow() {
	select {
	case c.urgent <- struct{}{}:
	default:
	}
}

// Stop ends the committer when the session is over. It returns when no commit is in flight, or after FencedAfter. A
// follower that joins again in an unchanged group keeps its generation, so a late commit of this session could undo a
// newer one of the next. After FencedAfter it is fenced, because nobody sent heartbeats.
func (c *Committer) Stop() {
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
	fenced := time.NewTimer(c.FencedAfter)
	defer fenced.Stop()
	select {
	case <-c.done:
	case <-fenced.C:
	}
}

func (c *Committer) run() {
	defer close(c.done)
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	var again <-chan time.Time
	for {
		select {
		case <-c.stopping:
			return
		case <-c.urgent:
		case <-again:
		case <-tick.C:
		}
		again = nil
		if left := c.flush(); left {
			again = time.After(cluster.CommitRetryPause)
		}
	}
}

// flush commits all changes, those for which a message waits last. It leaves out no partition: if a suspect's commit left
// out the origin, a retry that kills its process would be written again by the next process. again reports whether to try
// again soon.
func (c *Committer) flush() (again bool) {
	c.mu.Lock()
	partitions := make([]*Partition, 0, len(c.partitions))
	for p := range c.partitions {
		partitions = append(partitions, p)
	}
	c.mu.Unlock()
	var all, awaited []*snapshot
	for _, p := range partitions {
		snap := p.takeSnapshot()
		if snap != nil {
			snap.report()
		}
		switch {
		case snap == nil:
		case c.SaramaCommits && snap.metadata.Idle && c.Limit.hasAccepted(len(snap.metadata.Text)):
			snap.apply(nil)
		case snap.metadata.Idle:
			all = append(all, snap)
		default:
			awaited = append(awaited, snap)
		}
	}
	return c.commit(append(all, awaited...))
}

// maxRequestBytes bounds the offsets of one request. A broker writes them as one batch, and refuses all if that is larger
// than max.message.bytes of __consumer_offsets, by default 1 MiB. offsetBytes estimates an offset without its metadata.
const (
	maxRequestBytes = 512 << 10
	offsetBytes     = 512
)

var errNotSent = errors.New("kafka: an earlier request of this commit failed")

// commit commits snapshots in their order, in requests that a broker accepts. It reports whether to try again soon.
func (c *Committer) commit(all []*snapshot) (again bool) {
	for len(all) > 0 {
		var offsets []cluster.OffsetCommit
		for size := 0; len(offsets) < len(all) && size < maxRequestBytes; {
			snap := all[len(offsets)]
			cfg := &snap.p.cfg
			offsets = append(offsets, cluster.OffsetCommit{Topic: cfg.Topic, Partition: cfg.Partition, Offset: snap.offset, Metadata: snap.metadata.Text})
			size += len(snap.metadata.Text) + offsetBytes
		}
		errs := c.Commit(all[0].p.cfg.Session, offsets)
		if !slices.Contains(errs, nil) { // The request failed. A later one must not succeed before it.
			errs = append(errs, slices.Repeat([]error{errNotSent}, len(all)-len(errs))...)
		}
		longest := 0 // of the refused texts: a broker may refuse the whole request for one of them
		for i, err := range errs {
			if errors.Is(err, sarama.ErrOffsetMetadataTooLarge) {
				longest = max(longest, len(all[i].metadata.Text))
			}
		}
		for i, err := range errs {
			if err == nil {
				c.Limit.accept(len(all[i].metadata.Text))
			}
			all[i].tooLong = len(all[i].metadata.Text) == longest
			again = all[i].apply(err) || again
		}
		all = all[len(errs):]
	}
	return again
}

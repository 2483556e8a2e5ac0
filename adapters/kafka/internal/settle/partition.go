// Package settle records which records of a partition are settled, and commits that for the consumer group.
//
// A group commits one offset of each partition: all records below it are settled. But records settle out of order,
// because one waits, or its handler takes long. So each commit also lists the settled records above its offset, in its
// metadata (package commitmeta), and the next owner of the partition skips them. The same metadata says what the owner
// may have begun, so that the next owner finds a record that killed the process (package crash).
//
// A [Partition] is one partition in one session. Its lane adds each record that it reads, asks whether the record may
// begin, and settles it. A [Committer] commits all partitions of a session: at an interval, and at once if a message
// waits for a commit. When the lane ends, the last commit says that the owner has ended in order.
//
// After a kill only the records run again that were not settled, or settled after the last commit.
package settle

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/crash"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// MaxSpan bounds the records between the lowest unsettled one and the highest that has begun.
const MaxSpan = 65_536

// lastCommitTimeout bounds how long an ending lane waits for its last commit.
const lastCommitTimeout = 3 * time.Second

// ChangeRunAgain is reported if messages that are settled may run again, because no commit lists them. The detail names
// the partition and how many they are.
const ChangeRunAgain redeliver.Change = "settled messages run again"

// message is a message of a partition.
type message = driver.Message[*sarama.ConsumerMessage]

// Config is what a Partition knows when its lane begins.
type Config struct {
	Session   sarama.ConsumerGroupSession
	Topic     string
	Partition int32
	Committed int64           // the offset that the group has committed; -1 for none
	Settled   commitmeta.Runs // the records above it that earlier sessions settled
	Meta      commitmeta.Meta // what the last owner left, as far as it applies
	Crash     crash.Config
	// ReportInMemory reports that commits do not have the attempts of the message that keeps its place.
	ReportInMemory func(error)
	// OnCommit is called after each commit, with the offset below which all records are settled. It may be nil.
	OnCommit func(mark int64)
}

// Partition is one partition in one session. Only the goroutine of its lane calls its methods.
type Partition struct {
	cfg       Config
	committer *Committer
	lane      driver.Lane[*sarama.ConsumerMessage]

	mu      sync.Mutex // the lane's goroutine and the committer's use the following; track and high change only in the lane's
	track   tracker
	high    int64             // the offset behind all records that have begun or are settled
	last    commitmeta.Record // the last record of the log that was read, by this session or an earlier one
	settled int64             // number of messages
	crashes *crash.Gate
	head    head

	room      int   // bytes that commits surely have for records that begin, see IsTooFar
	countedAt int64 // value of settled when room was counted
	needsRoom bool  // a message waits for room
	named     int64 // settled records from this offset on were reported as unlisted

	dirty, inFlight bool // to be committed; being committed
	hasCommitted    bool
	settledAtCommit int64         // value of settled at that commit
	commitErr       error         // result of the last commit
	ending          bool          // the next commit is the last
	lastCommit      chan struct{} // closed when the last commit has succeeded or never will
}

// NewPartition returns a partition for a lane, which calls Start. If the last owner has died, it reports what is
// restricted because of that.
func NewPartition(c *Committer, cfg Config) *Partition {
	p := &Partition{cfg: cfg, committer: c, last: cfg.Meta.Last, named: math.MaxInt64}
	p.track.mark = cfg.Crash.From
	p.head = head{note: cfg.Meta.Head, unread: cfg.Meta.Head.Known()}
	if runs := cfg.Settled; len(runs) > 0 {
		p.high = runs[len(runs)-1].To
	}
	p.countRoomLocked(p.listedLocked())
	p.dirty = cfg.Crash.From != cfg.Committed // Commit even on a level without an offset, or deletions there would not be noticed.
	p.crashes = crash.New(guarded{p}, cfg.Crash, cfg.Meta)
	if end, suspects := p.crashes.Restrictions(); cfg.Meta.Known() && cfg.Meta.State != commitmeta.Left && end+int64(suspects) > 0 {
		cfg.Crash.Sub.EmitChange(redeliver.ChangeSuspectsRunAlone, fmt.Sprintf("%s/%d: its last owner has died or was cut off; few messages run at a time up to offset %d, and %d messages run alone",
			cfg.Topic, cfg.Partition, max(end, cfg.Crash.From), suspects), nil)
	}
	return p
}

// Start makes the committer commit for the partition, until Finish.
func (p *Partition) Start(lane driver.Lane[*sarama.ConsumerMessage]) {
	p.lane = lane
	p.committer.add(p)
}

// Add adds the message of a record that was read, and sets its Seq and Alone. It returns [driver.ErrSettled] if an
// earlier session settled the record.
func (p *Partition) Add(m *message) error {
	rec := m.Record
	offset := rec.Offset
	wasSettled := p.cfg.Settled.Contains(offset)
	p.mu.Lock()
	defer p.mu.Unlock()
	m.Seq = p.track.add(offset)
	if offset > p.last.Offset || !p.last.Known() {
		p.last = identify(rec)
	}
	p.head.read(rec, wasSettled)
	if wasSettled {
		before := p.track.mark
		p.track.settle(m.Seq)
		p.dirty = p.dirty || p.track.mark != before
		return driver.ErrSettled
	}
	m.Alone = p.crashes.IsSuspect(offset)
	return nil
}

// Settle settles a record. It returns the number of the lowest record that is not settled.
func (p *Partition) Settle(number uint64) (lowest uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settled++
	p.dirty = true
	p.beginLocked(number) // it may be settled without
	p.head.settle(p.track.At(number).offset)
	p.track.settle(number)
	return p.track.lowest
}

// Span returns the number of records from the lowest unsettled one to the last one that was read.
func (p *Partition) Span() int { return p.track.Len() }

// IsTooFar reports whether a record may not begin, because it is so far above the lowest unsettled one that a commit
// might not have room to list it when it is settled. The lane asks again when the lowest one has settled. If commits
// have room again, the lane gets an empty Post.
//
// A broker that accepts little metadata bounds only the number of records: otherwise they would run one after another.
// An event names what its commits do not list.
func (p *Partition) IsTooFar(number uint64) bool {
	ahead := number - p.track.lowest
	r := p.track.At(number)
	switch {
	case ahead >= MaxSpan:
		return true
	case ahead == 0, r.begun, max(p.high, r.offset+1)-p.track.mark <= commitmeta.MaxSureSpan:
		return false
	case p.committer.Limit.isShort():
		return ahead >= commitmeta.MaxSureSpan
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	size := commitmeta.SizeOfOne(r.offset, p.track.mark)
	if size > p.room && p.settled-p.countedAt >= recountAfter {
		p.countRoomLocked(p.listedLocked())
	}
	p.needsRoom = size > p.room
	return p.needsRoom
}

// recountAfter is after how many settled records room is counted again for one that waits. It takes a pass over all
// records.
const recountAfter = 256

// listedLocked returns the settled records above the mark, those of earlier sessions included that were not read again.
func (p *Partition) listedLocked() commitmeta.Runs {
	return p.track.above().Append(p.cfg.Settled.From(max(p.track.read, p.track.mark)))
}

// countRoomLocked counts the room of commits that list the given records. Those that have begun need room, too.
func (p *Partition) countRoomLocked(listed commitmeta.Runs) {
	p.room = commitmeta.MaxRunBytes - listed.Size(p.track.mark) - p.track.begunSize()
	p.countedAt = p.settled
}

// beginLocked takes the room of a record that begins.
func (p *Partition) beginLocked(number uint64) {
	if r := p.track.At(number); !r.begun {
		r.begun = true
		p.high = max(p.high, r.offset+1)
		p.room -= commitmeta.SizeOfOne(r.offset, p.track.mark)
	}
}

// Begin decides whether a message may begin, see [crash.Gate.Begin].
func (p *Partition) Begin(m *message) engine.Admission {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.head.delays(p.track.At(m.Seq).offset) {
		return engine.NotYet
	}
	admission := p.crashes.Begin(m)
	if admission == engine.Begins {
		p.beginLocked(m.Seq)
	}
	return admission
}

// HandlerEnded records that the handler of a message has returned.
func (p *Partition) HandlerEnded(m *message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crashes.HandlerEnded(m)
}

// Ended records the end of a message that Begin has let begin. If the message keeps its place, the next commit has its
// attempts, and it does not begin again before.
func (p *Partition) Ended(m *message, how engine.Ending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crashes.Ended(m, how.Kind)
	if how.Kind == engine.Stays {
		p.noteLocked(m, how.State)
	}
}

// Returned records that a message leaves the lane unsettled. It will be read again. keepsPlace reports whether a message
// that has failed is then the first to run.
func (p *Partition) Returned(m *message, keepsPlace bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crashes.Returned(m)
	if st := m.State; keepsPlace && !m.Displaced && st != nil && !st.LastFailed.IsZero() {
		p.noteLocked(m, st)
	}
}

// Drains handles the begin of the lane's drain: no suspect begins any more.
func (p *Partition) Drains() { p.crashes.Drains() }

// Finish makes the last commit. If that fails, it reports how many messages may run again: the partition's next owner
// does not know that they are settled. It returns when the commit has succeeded or never will, or after
// lastCommitTimeout, or when ctx ends.
func (p *Partition) Finish(ctx context.Context) {
	if lastCommit := p.requestLastCommit(); lastCommit != nil {
		p.committer.commitNow()
		p.awaitLastCommit(ctx, lastCommit)
	}
	p.committer.remove(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crashes.ReleaseTurn()
}

// requestLastCommit makes the next commit the last one. It returns lastCommit, or nil if there is nothing to commit.
func (p *Partition) requestLastCommit() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crashes.Finish(p.hasCommitted || p.track.mark != p.cfg.Crash.From)
	p.ending = true
	if !p.dirty && !p.inFlight {
		return nil
	}
	p.lastCommit, p.dirty = make(chan struct{}), true
	return p.lastCommit
}

func (p *Partition) awaitLastCommit(ctx context.Context, lastCommit chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, lastCommitTimeout)
	defer cancel()
	late := false
	select {
	case <-lastCommit:
	case <-ctx.Done():
		late = true
	}
	p.mu.Lock()
	n, mark, err := p.settled-p.settledAtCommit, p.track.mark, p.commitErr
	p.lastCommit, p.dirty = nil, false
	p.mu.Unlock()
	if n == 0 {
		return
	}
	where := fmt.Sprintf("%s/%d", p.cfg.Topic, p.cfg.Partition)
	if late {
		err = errors.Join(fmt.Errorf("kafka: the broker did not accept the last commit of %s within %s", where, lastCommitTimeout), err)
	}
	p.cfg.Crash.Sub.EmitChange(ChangeRunAgain, fmt.Sprintf("%s: up to %d messages, because the last commit, of offset %d, failed. "+
		"If that happens at every rebalance, check that members have enough CPU for their heartbeats, and that DrainTimeout is well below Sarama.Consumer.Group.Rebalance.Timeout",
		where, n, mark), err)
}

// stopWaitingLocked makes Finish return.
func (p *Partition) stopWaitingLocked() {
	if p.lastCommit != nil {
		close(p.lastCommit)
		p.lastCommit = nil
	}
}

// snapshot is what to commit of a partition at one moment.
type snapshot struct {
	p        *Partition
	offset   int64
	metadata crash.Metadata
	settled  int64  // messages settled since the partition began
	head     uint64 // version of the head
	unlisted int64  // settled messages that the metadata do not list and that were not reported
	last     bool
	tooLong  bool // its metadata are the longest of those that a request was refused for
}

// takeSnapshot returns what to commit, or nil.
func (p *Partition) takeSnapshot() *snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dirty {
		return nil
	}
	snap := &snapshot{p: p, offset: p.track.mark, settled: p.settled, head: p.head.version, last: p.ending}
	listed := p.listedLocked()
	snap.metadata = p.crashes.Metadata(snap.offset, listed, p.last, p.head.note, p.committer.Limit.size())
	snap.metadata.Idle = snap.metadata.Idle && p.head.version == p.head.done
	if from := snap.metadata.Unlisted; from >= 0 && from < p.named {
		p.named, snap.unlisted = from, listed.From(from).Count()
	}
	p.countRoomLocked(listed)
	if p.needsRoom && p.room > 0 {
		p.needsRoom = false
		p.lane.Post(func() {}) // the lane asks again for messages that were too far
	}
	p.dirty, p.inFlight = false, true
	return snap
}

// report reports settled messages that a commit, for the first time, does not list. The caller calls it before it
// commits.
func (snap *snapshot) report() {
	if snap.unlisted == 0 {
		return
	}
	cfg := &snap.p.cfg
	cfg.Crash.Sub.EmitChange(ChangeRunAgain, fmt.Sprintf("%s/%d: up to %d messages, because the broker accepts too little metadata: commits do not list settled offsets from %d on, and these run again if another member takes the partition over before offset %d is settled. "+
		"Set the brokers' offset.metadata.max.bytes to 4096, the default", cfg.Topic, cfg.Partition, snap.unlisted, snap.metadata.Unlisted, snap.offset), nil)
}

// apply applies the result of committing a snapshot. It reports whether to try again soon.
func (snap *snapshot) apply(err error) (again bool) {
	p := snap.p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight, p.commitErr = false, err
	if err != nil {
		p.dirty = true
		return snap.refusedLocked(err)
	}
	p.hasCommitted, p.settledAtCommit = true, snap.settled
	if cfg := &p.cfg; p.committer.SaramaCommits {
		// MarkOffset ignores the metadata of a marked offset, so ResetOffset sets it.
		cfg.Session.MarkOffset(cfg.Topic, cfg.Partition, snap.offset, snap.metadata.Text)
		cfg.Session.ResetOffset(cfg.Topic, cfg.Partition, snap.offset, snap.metadata.Text)
	}
	if p.cfg.OnCommit != nil {
		p.cfg.OnCommit(snap.offset)
	}
	p.crashes.Committed(snap.metadata)
	p.noteDoneLocked(snap, snap.metadata.HasHead, nil)
	if snap.last {
		p.stopWaitingLocked()
	}
	return false
}

func (snap *snapshot) refusedLocked(err error) (again bool) {
	p := snap.p
	switch {
	case errors.Is(err, sarama.ErrOffsetMetadataTooLarge) && snap.metadata.Text != "":
		if snap.tooLong {
			p.committer.Limit.refuse(len(snap.metadata.Text))
		}
		return true // with less
	case cluster.IsDenied(err): // nothing begins meanwhile, see engine.Operations; the next interval tries again
		p.stopWaitingLocked()
		return false
	case cluster.IsPermanentRefusal(err):
		p.crashes.GiveUp(err)
		p.noteDoneLocked(snap, false, err)
		p.stopWaitingLocked()
		return false
	case snap.last && (cluster.IsFenced(err) || errors.Is(err, sarama.ErrUnknownTopicOrPartition)): // a cooperative lane outlives its generation
		p.stopWaitingLocked()
		return false
	default: // the group rebalances, or its coordinator moves
		return true
	}
}

// guarded is a Partition as its crash.Gate sees it. The gate calls all methods but Post with the lock.
type guarded struct{ p *Partition }

func (g guarded) Offset(m *message) int64 { return g.p.track.At(m.Seq).offset }

func (g guarded) Mark() int64 { return g.p.track.mark }

func (g guarded) Commit(atOnce bool) {
	g.p.dirty = true
	if atOnce {
		g.p.committer.commitNow()
	}
}

func (g guarded) Post(f func()) bool {
	return g.p.lane.Post(func() {
		g.p.mu.Lock()
		defer g.p.mu.Unlock()
		f()
	})
}

package kafkashare

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// A share group cannot hold messages that wait: each lock that ends costs a delivery, and a member that renews locks
// may not poll. So a normal consumer group reads the levels and the retry topic, each partition in one lane. The group
// commits the offset below which all records are settled. After a kill, records that settled above it run again.

const (
	commitInterval = 200 * time.Millisecond
	maxPolled      = 500
	maxAhead       = 4096                   // messages of one partition that are due
	minResumeRoom  = 1024                   // free places of the lane at which a paused partition resumes
	maxSpan        = 65_536                 // records of one partition from the lowest unsettled one on
	fetchWait      = 250 * time.Millisecond // of a fetch without records, which a resumed partition must wait for
	maxWaitBytes   = 8 << 20                // of the messages of one partition in memory
)

// levelMember is the member of the consumer group that reads a subscription's levels and retry topic.
type levelMember struct {
	r  *reader
	cl *kgo.Client

	end     atomic.Pointer[context.CancelCauseFunc] // makes run end with an error
	mu      sync.Mutex
	sources map[partition]*levelSource
}

type partition struct {
	topic string
	n     int32
}

// joinRetryGroup makes the member of the consumer group.
func (r *reader) joinRetryGroup(ctx context.Context) (*levelMember, error) {
	m := &levelMember{r: r, sources: make(map[partition]*levelSource)}
	cfg := &r.client.cfg
	ready := make(chan struct{})
	defer close(ready)
	var err error
	m.cl, err = r.client.newClient(
		kgo.ConsumerGroup(cfg.retryGroup()), kgo.ConsumeRegex(), kgo.ConsumeTopics(r.layout.waitTopics()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.AutoCommitCallback(func(_ *kgo.Client, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			m.recordCommit(req, resp, err)
		}),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(commitInterval), kgo.RebalanceTimeout(time.Minute),
		kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(fetchWait),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
			<-ready // the client joins the group before newClient has returned it
			m.assign(ctx, added)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, cl *kgo.Client, gone map[string][]int32) {
			m.endLanes(gone, false)
			commitCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
			defer cancel()
			_ = cl.CommitMarkedOffsets(commitCtx) // uncommitted records run again
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { m.endLanes(gone, true) }))
	return m, err
}

// run reads until ctx ends or the group is lost, and then leaves the group.
func (m *levelMember) run(ctx context.Context) (lost error) {
	var deleting sync.WaitGroup
	defer deleting.Wait()
	service := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	m.end.Store(&stop)
	deleting.Go(func() { m.keepDeleting(ctx) })
	for ctx.Err() == nil && lost == nil {
		fetched := m.cl.PollRecords(ctx, maxPolled)
		fetched.EachTopic(func(t kgo.FetchTopic) {
			t.EachRecord(func(rec *kgo.Record) { m.passToLane(rec, t.TopicID) })
		})
		m.cl.AllowRebalance()
		lost = m.r.reportFetchErrors(ctx, fetched, fetchRequest, "")
	}
	m.cl.CloseAllowingRebalance() // revokes, and so waits for the lanes
	if lost == nil && service.Err() == nil {
		lost = context.Cause(ctx)
	}
	return lost
}

// passToLane passes a record to the lane of its partition.
func (m *levelMember) passToLane(rec *kgo.Record, topicID [16]byte) {
	m.mu.Lock()
	s := m.sources[partition{rec.Topic, rec.Partition}]
	m.mu.Unlock()
	if s == nil {
		return
	}
	if s.topicID == ([16]byte{}) { // during one assignment the client never reads a later topic of this name
		s.topicID = topicID
	}
	select {
	case s.in <- rec:
	case <-s.ended:
	}
}

// assign begins a lane for each added partition.
func (m *levelMember) assign(ctx context.Context, added map[string][]int32) {
	m.r.reportAssigned(fmt.Sprintf("%d topics of retries", len(added)))
	for topic, numbers := range added {
		level, ok := m.r.layout.level(topic)
		if !ok {
			continue
		}
		for _, n := range numbers {
			m.beginLane(ctx, partition{topic, n}, level)
		}
	}
}

// beginLane runs a lane for a partition.
func (m *levelMember) beginLane(ctx context.Context, p partition, level time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	s := &levelSource{member: m, p: p, level: level, in: make(chan *kgo.Record), lost: make(chan struct{}), ended: make(chan struct{}), cancel: cancel}
	m.mu.Lock()
	m.sources[p] = s
	m.mu.Unlock()
	m.cl.ResumeFetchPartitions(s.partitions())
	go func() {
		defer close(s.ended)
		m.r.engine.RunLane(ctx, m.r.values, s, engine.LaneOptions[*kgo.Record]{
			MaxAhead: maxAhead, MaxBytes: maxWaitBytes, DrainTimeout: m.r.client.cfg.DrainTimeout,
		}, nil)
	}()
}

// endLanes ends the lanes of partitions and waits for them. A lost partition may have another owner.
func (m *levelMember) endLanes(gone map[string][]int32, lost bool) {
	var all []*levelSource
	m.mu.Lock()
	for topic, numbers := range gone {
		for _, n := range numbers {
			if s := m.sources[partition{topic, n}]; s != nil {
				all = append(all, s)
				delete(m.sources, partition{topic, n})
			}
		}
	}
	m.mu.Unlock()
	for _, s := range all {
		if lost {
			close(s.lost)
		}
		s.cancel()
	}
	for _, s := range all {
		<-s.ended
	}
}

// levelSource is one partition of a topic on which messages wait. It implements driver.Source.
type levelSource struct {
	member *levelMember
	p      partition
	level  time.Duration
	in     chan *kgo.Record
	lost   chan struct{}
	ended  chan struct{} // closed when the lane has ended
	cancel context.CancelFunc

	topicID      [16]byte     // set before the first record is settled
	settledBelow atomic.Int64 // all records below it are settled; 0 if none was settled yet
	deletedBelow int64        // used only by deleteSettled

	// Used only by the lane's goroutine.
	room   int // of the lane
	paused bool
	first  uint64    // Seq of the lowest unsettled record
	track  []tracked // the records from first on
}

// tracked is one record that was read.
type tracked struct {
	next    kgo.EpochOffset // to commit when this record and all before it are settled
	settled bool
}

var _ driver.Source[*kgo.Record] = (*levelSource)(nil)

func (s *levelSource) partitions() map[string][]int32 { return map[string][]int32{s.p.topic: {s.p.n}} }

// Messages implements [driver.Source].
func (s *levelSource) Messages() <-chan *kgo.Record { return s.in }

// Lost implements [driver.Source].
func (s *levelSource) Lost() <-chan struct{} { return s.lost }

// Stop implements [driver.Source].
func (s *levelSource) Stop() <-chan struct{} { return nil }

// Accept implements [driver.Source].
func (s *levelSource) Accept(n int) {
	s.room = n
	s.balance()
}

// balance pauses the partition when the lane has no room, or when one slow message holds up the commit of too many
// others. The thresholds for resuming are lower, so that the partition does not pause and resume for every record.
func (s *levelSource) balance() {
	switch span := len(s.track); {
	case !s.paused && (s.room == 0 || span >= maxSpan):
		s.paused = true
		s.member.cl.PauseFetchPartitions(s.partitions())
	case s.paused && s.room >= minResumeRoom && span <= maxSpan*7/8:
		s.paused = false
		s.member.cl.ResumeFetchPartitions(s.partitions())
	}
}

// Parse implements [driver.Source]. It restores the record of the origin.
func (s *levelSource) Parse(m *driver.Message[*kgo.Record]) error {
	r, rec := s.member.r, *m.Record
	m.Seq = s.first + uint64(len(s.track))
	s.track = append(s.track, tracked{next: kgo.EpochOffset{Epoch: rec.LeaderEpoch, Offset: rec.Offset + 1}})
	unread := cutHeaders(&rec, true)
	var ours []driver.Header
	rec.Headers, ours = splitHeaders(rec.Headers)
	stay := delayqueue.Arrive(&delayqueue.Arrival{
		Group: r.layout.group, Origin: r.layout.origin, Ladder: r.layout.ladder, Level: s.level, Written: rec.Timestamp, Jitter: r.layout.jitter, Now: time.Now(),
	}, ours, func() string { return recordID(&rec) })
	st := stay.State
	st.DeadLetter, _ = r.layout.readDeadLetter(&rec) // its findings were reported at the first delivery
	st.Expires = expiresOf(&rec)
	r.sub.CheckPolicyOf(st)
	if len(stay.Findings) > 0 {
		r.sub.Emit(redeliver.HeadersIgnored{Topic: s.p.topic, ID: st.ID, Findings: stay.Findings})
	}
	rec.Topic, rec.Partition, rec.Offset, rec.Timestamp = r.layout.origin, -1, -1, st.Source.Timestamp
	if st.Source.Known {
		rec.Partition, rec.Offset = st.Source.Partition, st.Source.Offset
	}
	m.Record, m.Size, m.State, m.Place = &rec, sizeOf(&rec), st, s.p.topic
	m.Retry, m.Displaced, m.Until = true, true, stay.Until
	switch {
	case stay.Hops:
		m.Step = driver.StepHop
	case stay.Publish:
		m.Step = driver.StepPublish
	}
	if unread != nil {
		r.codec().makeStub(m, unread)
	}
	return nil
}

// Settle implements [driver.Source]. It marks the offset below which all records are settled; the client commits it.
func (s *levelSource) Settle(m *driver.Message[*kgo.Record]) {
	s.track[m.Seq-s.first].settled = true
	n := 0
	for n < len(s.track) && s.track[n].settled {
		n++
	}
	if n == 0 {
		return
	}
	next := s.track[n-1].next
	s.track, s.first = s.track[n:], s.first+uint64(n)
	s.settledBelow.Store(next.Offset)
	s.member.cl.MarkCommitOffsets(map[string]map[int32]kgo.EpochOffset{s.p.topic: {s.p.n: next}})
	s.balance() // the lane's room alone may not have changed
}

// Return implements [driver.Source]. The record stays unsettled and is read again.
func (s *levelSource) Return(*driver.Message[*kgo.Record], time.Duration, bool) {}

// Commit implements [driver.Source]: the client commits every 200 ms.
func (s *levelSource) Commit() {}

// Flush implements [driver.Source]: the revocation commits.
func (s *levelSource) Flush(context.Context) {}

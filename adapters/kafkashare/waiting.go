package kafkashare

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wait"
)

// A share group cannot hold messages that wait: a lock that ends costs a delivery, and a member that renews locks may
// not poll. So a normal consumer group reads the levels and the retry topic. One lane reads each partition. The group
// commits the offset below which all records are settled, so after a kill some settled records run again.

const (
	commitInterval = 200 * time.Millisecond
	maxPolled      = 500
	readAhead      = 4096                   // messages of one partition that are due
	resumeAt       = 1024                   // free places at which a full partition resumes
	fetchWait      = 250 * time.Millisecond // a partition that resumes waits for the fetch that is on its way
	maxWaitBytes   = 8 << 20                // of the messages of one partition in memory
)

// waiters is the member of the consumer group that reads a subscription's levels.
type waiters struct {
	r  *reader
	cl *kgo.Client

	mu      sync.Mutex
	sources map[partition]*waiting
}

type partition struct {
	topic string
	n     int32
}

// joinWaiters makes the member of the consumer group.
func (r *reader) joinWaiters(ctx context.Context) (*waiters, error) {
	w := &waiters{r: r, sources: make(map[partition]*waiting)}
	cfg := &r.client.cfg
	var err error
	w.cl, err = r.client.newClient(
		kgo.ConsumerGroup(cfg.RetryGroup), kgo.ConsumeRegex(), kgo.ConsumeTopics(r.layout.waiting()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(commitInterval), kgo.RebalanceTimeout(max(time.Minute, 2*cfg.DrainTimeout)),
		kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(fetchWait),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) { w.assign(ctx, added) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, cl *kgo.Client, gone map[string][]int32) {
			w.end(gone, false)
			commit, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
			defer cancel()
			_ = cl.CommitMarkedOffsets(commit) // what is not committed runs again
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { w.end(gone, true) }))
	return w, err
}

// run reads until ctx ends or the group is lost, and then leaves the group.
func (w *waiters) run(ctx context.Context) (lost error) {
	for ctx.Err() == nil && lost == nil {
		fetched := w.cl.PollRecords(ctx, maxPolled)
		fetched.EachError(func(topic string, n int32, err error) {
			switch group, ok := errors.AsType[*kgo.ErrGroupSession](err); {
			case ctx.Err() != nil:
			case ok:
				lost = group
			default:
				w.r.sub.EmitChange(redeliver.ChangeNotRead, fmt.Sprintf("%s/%d", topic, n), err)
				_ = wait.For(ctx, time.Second) // the loop notices the end of ctx
			}
		})
		fetched.EachRecord(w.dispatch)
		w.cl.AllowRebalance()
	}
	w.cl.CloseAllowingRebalance() // revokes, and so waits for the lanes
	return lost
}

// dispatch hands a record to the lane of its partition.
func (w *waiters) dispatch(rec *kgo.Record) {
	w.mu.Lock()
	s := w.sources[partition{rec.Topic, rec.Partition}]
	w.mu.Unlock()
	if s == nil {
		return
	}
	select {
	case s.in <- rec:
	case <-s.ended:
	}
}

func (w *waiters) assign(ctx context.Context, added map[string][]int32) {
	w.r.sub.EmitChange(redeliver.ChangeAssigned, fmt.Sprintf("%d topics of retries", len(added)), nil)
	for topic, numbers := range added {
		level, ok := w.r.layout.level(topic)
		if !ok {
			continue
		}
		for _, n := range numbers {
			w.begin(ctx, partition{topic, n}, level)
		}
	}
}

// begin runs a lane for a partition.
func (w *waiters) begin(ctx context.Context, p partition, level time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	s := &waiting{w: w, p: p, level: level, in: make(chan *kgo.Record), lost: make(chan struct{}), ended: make(chan struct{}), cancel: cancel}
	w.mu.Lock()
	w.sources[p] = s
	w.mu.Unlock()
	w.cl.ResumeFetchPartitions(s.names())
	go func() {
		defer close(s.ended)
		w.r.engine.RunLane(ctx, w.r.values, s, engine.LaneOptions[*kgo.Record]{
			MaxAhead: readAhead, MaxBytes: maxWaitBytes, DrainTimeout: w.r.client.cfg.DrainTimeout,
		}, nil)
	}()
}

// end ends the lanes of partitions and waits for them. A lost partition may have another owner.
func (w *waiters) end(gone map[string][]int32, lost bool) {
	var all []*waiting
	w.mu.Lock()
	for topic, numbers := range gone {
		for _, n := range numbers {
			if s := w.sources[partition{topic, n}]; s != nil {
				all = append(all, s)
				delete(w.sources, partition{topic, n})
			}
		}
	}
	w.mu.Unlock()
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

// waiting is one partition of a topic on which messages wait. It implements driver.Source.
type waiting struct {
	w      *waiters
	p      partition
	level  time.Duration
	in     chan *kgo.Record
	lost   chan struct{}
	ended  chan struct{} // closed when the lane has ended
	cancel context.CancelFunc

	// Used only by the lane's goroutine.
	paused bool
	first  uint64    // number of the lowest unsettled record
	track  []tracked // from there on
}

// tracked is one record that was read.
type tracked struct {
	next    kgo.EpochOffset // to commit when it and all before it are settled
	settled bool
}

var _ driver.Source[*kgo.Record] = (*waiting)(nil)

func (s *waiting) names() map[string][]int32 { return map[string][]int32{s.p.topic: {s.p.n}} }

// Messages implements [driver.Source].
func (s *waiting) Messages() <-chan *kgo.Record { return s.in }

// Lost implements [driver.Source].
func (s *waiting) Lost() <-chan struct{} { return s.lost }

// Stop implements [driver.Source].
func (s *waiting) Stop() <-chan struct{} { return nil }

// Accept implements [driver.Source].
func (s *waiting) Accept(n int) {
	switch {
	case n == 0 && !s.paused:
		s.paused = true
		s.w.cl.PauseFetchPartitions(s.names())
	case n >= resumeAt && s.paused:
		s.paused = false
		s.w.cl.ResumeFetchPartitions(s.names())
	}
}

// Parse implements [driver.Source]. It makes the record what it was in its origin.
func (s *waiting) Parse(m *driver.Message[*kgo.Record]) error {
	r, rec := s.w.r, *m.Record
	m.Seq = s.first + uint64(len(s.track))
	s.track = append(s.track, tracked{next: kgo.EpochOffset{Epoch: rec.LeaderEpoch, Offset: rec.Offset + 1}})
	var ours []redeliver.Header
	rec.Headers, ours = splitHeaders(rec.Headers)
	stay := delayqueue.Arrive(&delayqueue.Arrival{
		Group: r.layout.group, Origin: r.layout.origin, Ladder: r.layout.ladder, Level: s.level, Written: rec.Timestamp, Jitter: r.layout.jitter, Now: time.Now(),
	}, ours, func() string { return recordID(&rec) })
	st := stay.State
	st.DeadLetter, _ = r.layout.readDeadLetter(&rec) // its findings were reported at the first delivery
	st.Expires = expiresOf(&rec)
	r.sub.Met(st)
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
		m.Step = driver.Hop
	case stay.Publish:
		m.Step = driver.Publish
	}
	return nil
}

// Settle implements [driver.Source]. It marks the offset below which all records are settled; the client commits it.
func (s *waiting) Settle(m *driver.Message[*kgo.Record]) {
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
	s.w.cl.MarkCommitOffsets(map[string]map[int32]kgo.EpochOffset{s.p.topic: {s.p.n: next}})
}

// Return implements [driver.Source]. The record stays unsettled and is read again.
func (s *waiting) Return(*driver.Message[*kgo.Record], time.Duration, bool) {}

// Commit implements [driver.Source]: the client commits every 200 ms.
func (s *waiting) Commit() {}

// Flush implements [driver.Source]: the revocation commits.
func (s *waiting) Flush(context.Context) {}

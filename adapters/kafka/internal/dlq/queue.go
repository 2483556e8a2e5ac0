// Package dlq gives package deadletter the DLQ of one subscription: it implements driver.DLQ on two topics.
//
// A log cannot delete records from its middle, so the DLQ's topic keeps a record after it was replayed or purged. A
// compacted companion topic with one partition, "<dlq>.state", says which records are removed, and has the locks and
// tasks of package deadletter. Every queue reads that topic from beginning to end, in the same order, into a
// ledger. The first record for a lock wins. A working session deletes the removed records at the DLQ's beginning, and
// then their outcomes.
//
// The DLQ may also be one that another program fills. Then nothing is deleted, and none of its headers count as
// redeliver's.
package dlq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/internal/wait"
	"github.com/redeliver/redeliver/internal/wirename"
)

// Config configures a queue. The client that opens the queue fills it.
type Config struct {
	Where       deadletter.Info
	Foreign     bool // another program fills the DLQ
	ForeignBack bool // a replay goes to a topic that redeliver does not write
	Lease       time.Duration
	Connection  sarama.Client // the queue's own, which it closes
	Admin       cluster.Admin
	Sink        redeliver.Sink

	Producer       *produce.Producer     // the client's, which does not batch
	Brokers        []string              // for a producer that batches, and its settings
	BatchingConfig func() *sarama.Config // a new copy at each call
	SendTimeout    time.Duration
	SpringHeaders  bool

	// CreateState creates the state topic beside the DLQ.
	CreateState func(name string, dlq *sarama.TopicMetadata) error
}

// Open opens a DLQ. If it returns an error, the connection is still open.
func Open(ctx context.Context, cfg Config) (*Queue, error) {
	q := &Queue{
		Config: cfg, asking: wait.NewMutex(), ledger: newLedger(),
		log: topiclog.Reader{Client: cfg.Connection, Topic: cfg.Where.DLQ}, state: topiclog.Reader{Client: cfg.Connection, Topic: cfg.Where.DLQ + wirename.StateSuffix},
	}
	q.open, q.end = context.WithCancel(context.Background())
	existing, err := q.findTopics(ctx)
	if err != nil {
		return nil, err
	}
	q.setTopics(existing)
	if err := q.checkReadBy(ctx); err != nil {
		return nil, err
	}
	return q, nil
}

// Queue is the DLQ of one subscription. It implements driver.DLQ.
type Queue struct {
	Config
	log, state topiclog.Reader
	open       context.Context // ends with the queue
	end        context.CancelFunc

	asking wait.Mutex // of who reads or creates the state topic

	mu         sync.Mutex // held only for moments
	partitions int32      // at the last check
	hasState   bool
	ledger     *ledger
}

// findTopics looks for the DLQ, its state and ReplayTo. It returns an error if the DLQ does not exist.
func (q *Queue) findTopics(ctx context.Context) (map[string]*sarama.TopicMetadata, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	existing, err := cluster.Call(ctx, func() (map[string]*sarama.TopicMetadata, error) {
		return q.Admin.Topics(q.Where.DLQ, q.state.Topic, q.Where.ReplayTo)
	})
	if err != nil {
		return nil, err
	}
	if existing[q.Where.DLQ] == nil {
		return nil, fmt.Errorf("kafka: the DLQ %s does not exist: group %s has never subscribed to %s, or its Names differ", q.Where.DLQ, q.Where.Group, q.Where.Origin)
	}
	return existing, nil
}

// setTopics stores the result of findTopics.
func (q *Queue) setTopics(existing map[string]*sarama.TopicMetadata) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.partitions, q.hasState = int32(len(existing[q.Where.DLQ].Partitions)), existing[q.state.Topic] != nil
}

// knowsState reports whether the state topic existed at the last check.
func (q *Queue) knowsState() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.hasState
}

// partitionCount returns the number of partitions of the DLQ.
func (q *Queue) partitionCount() int32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.partitions
}

// Info implements [driver.DLQ].
func (q *Queue) Info() deadletter.Info { return q.Where }

// Close implements [driver.DLQ]. A lock that was not released is no longer renewed, and expires.
func (q *Queue) Close() error {
	q.end()
	if err := q.Connection.Close(); err != nil && !errors.Is(err, sarama.ErrClosedClient) {
		return fmt.Errorf("kafka: closing the reader of %s: %w", q.Where.DLQ, err)
	}
	return nil
}

// Count implements [driver.DLQ]. Gaps in the log, which transactions and compaction leave, count as messages. But a partition without
// any message that can be read counts as empty: otherwise a DLQ of a transactional program would never be.
func (q *Queue) Count(ctx context.Context) (n int64, exact bool, err error) {
	if err := q.refresh(ctx); err != nil {
		return 0, false, err
	}
	for p := range q.partitionCount() {
		start, end, err := q.bounds(ctx, p)
		if err != nil {
			return 0, false, err
		}
		left := end - start
		q.mu.Lock()
		for _, s := range q.ledger.removed[p] {
			left -= max(0, min(s.Through+1, end)-max(s.From, start))
		}
		q.mu.Unlock()
		if q.Foreign && left > 0 {
			if _, found, err := q.oldestIn(ctx, p); err != nil {
				return 0, false, err
			} else if !found {
				left = 0
			}
		}
		n += left
	}
	return n, !q.Foreign, nil
}

// LockHolder implements [driver.DLQ].
func (q *Queue) LockHolder(ctx context.Context, lock string) (deadletter.Holder, bool, error) {
	return driver.LeaseHolder(ctx, q, lock)
}

// Load implements [driver.DLQ].
func (q *Queue) Load(ctx context.Context) (driver.State, error) {
	if err := q.refresh(ctx); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.ledger.state), nil
}

// Append implements [driver.DLQ].
func (q *Queue) Append(ctx context.Context, entries ...driver.Entry) error {
	if !q.knowsState() {
		topics, err := q.findTopics(ctx)
		if err != nil {
			return err
		}
		if err := q.provisionState(ctx, topics); err != nil {
			return err
		}
	}
	return q.Producer.WriteEntries(ctx, q.SendTimeout, q.state.Topic, entries...)
}

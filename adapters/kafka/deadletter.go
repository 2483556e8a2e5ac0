package kafka

import (
	"cmp"
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
	"github.com/redeliver/redeliver/internal/deadletter/driver"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wirename"
)

// defaultLease is how long the claim of a dead runner excludes the next one.
const defaultLease = 30 * time.Second

// DeadLetterConfig names the DLQ to open. Topic is required.
type DeadLetterConfig struct {
	// Topic is the origin whose messages the group failed.
	Topic string
	// Group is the group that failed them. Default: the client's.
	Group string
	// DLQ is a topic that another program fills for this group and origin: Spring Kafka,
	// Watermill's poison queue, Kafka Connect, Kafka Streams. Its settled records are not deleted,
	// because others may read it. Default: the DLQ of redeliver.
	DLQ string
	// ReplayTo is the destination of a replay if the group is not redeliver's: Spring's retry topic,
	// which only that group reads, or the origin, which every group reads. It must exist. It is
	// allowed only if another program fills DLQ. Default: the way back of redeliver.
	ReplayTo string
	// ReadBy is a group that reads DLQ. Records that it has committed are left out, because it has
	// handled them. Use it for a retry topic of Spring's when a group moves to redeliver: Spring
	// names that group after the listener's group and the topic's suffix, "billing-retry". Its
	// offsets are read at each scan, so stop it before. A group is refused if it has committed
	// nothing in a DLQ that is not empty, or more than the DLQ has. It is allowed only if another
	// program fills DLQ. Default: none, so all records are there.
	ReadBy string
	// Lease is how long a claim lasts without being renewed. It is renewed three times as often.
	// Default 30 s.
	Lease time.Duration
}

// DeadLetters opens the DLQ of a topic and a group. The topic of the DLQ must exist. Its companion,
// "<dlq>.state", is created with the first write to it. Keep the client open while you use the
// queue.
func (c *Client) DeadLetters(ctx context.Context, cfg DeadLetterConfig) (deadletter.Queue, error) {
	cfg.Lease = cmp.Or(cfg.Lease, defaultLease)
	cfg.Group = cmp.Or(cfg.Group, c.cfg.Group)
	var ps redeliver.Problems
	kafkaname.CheckTopic(&ps, "Topic", cfg.Topic)
	kafkaname.CheckGroup(&ps, "Group", cfg.Group)
	c.cfg.Names.check(&ps, cfg.Topic, cfg.Group)
	info := c.deadInfo(cfg.Topic, cfg.Group)
	foreign := cfg.DLQ != "" && cfg.DLQ != info.DLQ
	if foreign {
		kafkaname.CheckTopic(&ps, "DLQ", cfg.DLQ)
		if cfg.DLQ == cfg.Topic || cfg.DLQ == info.ReplayTo {
			ps.Add("DLQ", cfg.DLQ, "must not be the origin, nor the way back")
		}
		info.OwnDLQ, info.DLQ = info.DLQ, cfg.DLQ
	}
	foreignBack := cfg.ReplayTo != "" && cfg.ReplayTo != info.ReplayTo
	checkForeign(&ps, cfg, foreign, info.DLQ)
	if foreignBack {
		info.ReplayTo = cfg.ReplayTo
	}
	info.ReadBy = cfg.ReadBy
	kafkaname.CheckTopic(&ps, "the DLQ's state", info.DLQ+wirename.StateSuffix)
	ps.CheckDuration("Lease", cfg.Lease, time.Millisecond, 0)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	// A client of its own: fetches of megabytes hold up other requests of their connection.
	client, err := cluster.Dial(ctx, c.cfg.Brokers, c.cfg.clientConfig())
	if err != nil {
		return nil, err
	}
	q := &deadQueue{
		client: c, sessions: make(map[*deadSession]bool), info: info, foreign: foreign, foreignBack: foreignBack, lease: cfg.Lease, conn: client, ledger: newLedger(),
		log: topiclog.Reader{Client: client, Topic: info.DLQ}, state: topiclog.Reader{Client: client, Topic: info.DLQ + wirename.StateSuffix},
	}
	existing, err := q.findTopics(ctx)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	q.setTopicsLocked(existing)
	if err := q.checkReadBy(ctx); err != nil {
		_ = client.Close()
		return nil, err
	}
	return deadletter.New(q), nil
}

// deadInfo returns where the dead letters of a topic and a group are.
func (c *Client) deadInfo(topic, group string) deadletter.Info {
	return deadletter.Info{
		Broker: "kafka", DLQ: c.cfg.Names.dlq(topic, group), Origin: topic, Group: group,
		ReplayTo: c.cfg.Names.retry(topic, group), ReadEffect: deadletter.NoReadEffect,
	}
}

// deadQueue is the DLQ of one subscription. It implements driver.DLQ.
type deadQueue struct {
	client  *Client
	info    deadletter.Info
	foreign bool
	// foreignBack is set if a replay goes to a topic that redeliver does not write.
	foreignBack bool
	lease       time.Duration
	conn        sarama.Client
	log         topiclog.Reader
	state       topiclog.Reader

	mu         sync.Mutex
	partitions int32 // at the last check
	hasState   bool
	ledger     *ledger
	sessions   map[*deadSession]bool
}

// findTopics looks for the DLQ, its state and the way back. It returns an error if the DLQ does not exist.
func (q *deadQueue) findTopics(ctx context.Context) (map[string]*sarama.TopicMetadata, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	existing, err := q.client.admin.Topics(q.info.DLQ, q.state.Topic, q.info.ReplayTo)
	if err != nil {
		return nil, err
	}
	if existing[q.info.DLQ] == nil {
		return nil, fmt.Errorf("kafka: the DLQ %s does not exist: group %s has never subscribed to %s, or its Names differ", q.info.DLQ, q.info.Group, q.info.Origin)
	}
	return existing, nil
}

// setTopicsLocked stores the result of findTopics.
func (q *deadQueue) setTopicsLocked(existing map[string]*sarama.TopicMetadata) {
	q.partitions, q.hasState = int32(len(existing[q.info.DLQ].Partitions)), existing[q.state.Topic] != nil
}

// partitionCount returns the number of partitions of the DLQ.
func (q *deadQueue) partitionCount() int32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.partitions
}

// Info implements [driver.DLQ].
func (q *deadQueue) Info() deadletter.Info { return q.info }

// Close implements [driver.DLQ]. A lock that was not released is no longer renewed, and expires.
func (q *deadQueue) Close() error {
	q.mu.Lock()
	sessions := q.sessions
	q.sessions = nil
	q.mu.Unlock()
	for s := range sessions {
		s.leases.End()
		s.writer.close()
	}
	if err := q.conn.Close(); err != nil && !errors.Is(err, sarama.ErrClosedClient) {
		return fmt.Errorf("kafka: closing the reader of %s: %w", q.info.DLQ, err)
	}
	return nil
}

// Count implements [driver.DLQ]. Gaps in the log, which transactions and compaction leave, count as messages.
func (q *deadQueue) Count(ctx context.Context) (n int64, exact bool, err error) {
	if err := q.refresh(ctx); err != nil {
		return 0, false, err
	}
	for p := range q.partitionCount() {
		start, end, err := q.bounds(ctx, p)
		if err != nil {
			return 0, false, err
		}
		n += end - start
		q.mu.Lock()
		for _, s := range q.ledger.removed[p] {
			n -= max(0, min(s.Through+1, end)-max(s.From, start))
		}
		q.mu.Unlock()
	}
	return n, !q.foreign, nil
}

// LockHolder implements [driver.DLQ].
func (q *deadQueue) LockHolder(ctx context.Context, lock string) (h deadletter.Holder, ok bool, err error) {
	if err := q.refresh(ctx); err != nil {
		return h, false, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	h, ok = driver.LeaseHolder(q.ledger.state, lock, time.Now())
	return h, ok, nil
}

// Load implements [driver.DLQ].
func (q *deadQueue) Load(ctx context.Context) (driver.State, error) {
	if err := q.refresh(ctx); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.ledger.state), nil
}

// Append implements [driver.DLQ].
func (q *deadQueue) Append(ctx context.Context, entries ...driver.Entry) error {
	q.mu.Lock()
	hasState := q.hasState
	q.mu.Unlock()
	if !hasState {
		topics, err := q.findTopics(ctx)
		if err != nil {
			return err
		}
		if err := q.provisionState(topics); err != nil {
			return err
		}
	}
	return q.client.writeEntries(ctx, q.state.Topic, stateEntries(entries)...)
}

func stateEntries(entries []driver.Entry) []produce.Entry {
	all := make([]produce.Entry, 0, len(entries))
	for _, e := range entries {
		all = append(all, produce.Entry{Key: e.Key, Value: e.Value})
	}
	return all
}

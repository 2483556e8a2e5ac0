package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commands"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/mq"
)

// waiting shows the waiting messages of one topic and group without joining the group, and sends
// commands to its consumers. It is safe for concurrent use.
type waiting struct {
	c            *client
	topic, group string
	back         string // the retry topic
	client       sarama.Client
	control      *commands.Topic
	levels       []waitingTopic
}

// waitingTopic is a topic on which messages wait.
type waitingTopic struct {
	log        topiclog.Reader
	level      time.Duration
	partitions int32
}

// Waiting opens the waiting messages of a topic and a group. It finds the delay topics by name,
// those of older policies too. Keep the client open while you use it.
func (c *client) Waiting(ctx context.Context, cfg mq.WaitingConfig) (mq.Waiting, error) {
	w, err := c.openWaiting(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// WaitingLevels implements [mq.LevelCounter].
func (c *client) WaitingLevels(ctx context.Context, topic string) (levels []deadletter.WaitingLevel, err error) {
	err = c.withWaiting(ctx, topic, func(w *waiting) error {
		levels, err = w.Levels(ctx)
		return err
	})
	return levels, err
}

func (c *client) openWaiting(ctx context.Context, cfg mq.WaitingConfig) (*waiting, error) {
	cfg.Group = cmp.Or(cfg.Group, c.cfg.Group)
	var ps check.Problems
	kafkaname.CheckTopic(&ps, "Topic", cfg.Topic)
	kafkaname.CheckGroup(&ps, "Group", cfg.Group)
	c.cfg.names().Check(&ps, cfg.Topic, cfg.Group)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	existing, err := c.admin.Topics()
	if err != nil {
		return nil, err
	}
	names := c.cfg.names()
	back, control := names.RetryTopic(cfg.Topic, cfg.Group), names.ControlTopic(cfg.Topic, cfg.Group)
	if existing[back] == nil && existing[control] == nil { // the control topic alone may pause a group that has lost its topics
		return nil, fmt.Errorf("kafka: %s does not exist: group %s has never subscribed to %s, or its Names differ", back, cfg.Group, cfg.Topic)
	}
	client, err := cluster.Dial(ctx, c.cfg.Brokers, c.cfg.clientConfig())
	if err != nil {
		return nil, err
	}
	w := &waiting{c: c, topic: cfg.Topic, group: cfg.Group, client: client, back: back}
	for name, t := range existing {
		level, ok := names.Level(cfg.Topic, cfg.Group, name)
		if ok || name == back {
			w.levels = append(w.levels, waitingTopic{topiclog.Reader{Client: client, Topic: name}, level, int32(len(t.Partitions))})
		}
	}
	slices.SortFunc(w.levels, func(x, y waitingTopic) int { return cmp.Compare(x.level, y.level) })
	w.control = commands.NewTopic(commands.TopicConfig{
		Name: control, Exists: existing[control] != nil, Create: w.createControl,
		Client: client, Admin: c.admin, Producer: c.producer, SendTimeout: c.cfg.SendTimeout,
	})
	return w, nil
}

// Close closes the connections.
func (w *waiting) Close() error {
	if err := w.client.Close(); err != nil && !errors.Is(err, sarama.ErrClosedClient) {
		return fmt.Errorf("kafka: closing the reader of messages that wait for %s: %w", w.topic, err)
	}
	return nil
}

// offsetRange is the offsets of a partition's waiting messages: from the committed one to the end, except settled ones.
type offsetRange struct {
	partition  int32
	start, end int64
	settled    commitmeta.Runs
}

// depth returns how many offsets are not settled.
func (r *offsetRange) depth() int64 {
	n := r.end - r.start
	for _, run := range r.settled {
		n -= max(0, min(run.To, r.end)-max(run.From, r.start))
	}
	return n
}

// waitingRanges returns the range of each partition of a topic.
func (w *waiting) waitingRanges(ctx context.Context, t *waitingTopic) ([]offsetRange, error) {
	partitions := make([]int32, t.partitions)
	for p := range t.partitions {
		partitions[p] = p
	}
	committed, err := w.c.admin.GroupOffsetsIfAny(w.group, map[string][]int32{t.log.Topic: partitions})
	if err != nil {
		return nil, err
	}
	all := make([]offsetRange, 0, len(partitions))
	for _, p := range partitions {
		next, err := committed.Offset(t.log.Topic, p)
		if err != nil {
			return nil, err
		}
		start, end, err := t.log.Bounds(ctx, p)
		if err != nil {
			return nil, err
		}
		r := offsetRange{partition: p, start: next, end: end}
		if next < start || next > end {
			r.start = start
		}
		if meta := commitmeta.Parse(committed.Metadata(t.log.Topic, p)); len(meta.Settled) > 0 && meta.IsOf(next) { // as a member does
			has, err := t.log.Has(ctx, p, meta.Last)
			if err != nil {
				return nil, err
			}
			if has {
				r.settled = meta.Settled
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// Levels returns how much waits on each level, the retry topic first. It reads only the first waiting
// record of each partition. Gaps that transactions left in the log count as messages.
func (w *waiting) Levels(ctx context.Context) ([]deadletter.WaitingLevel, error) {
	all := make([]deadletter.WaitingLevel, 0, len(w.levels))
	for i := range w.levels {
		t := &w.levels[i]
		level := deadletter.WaitingLevel{Level: t.level, Place: t.log.Topic, Exact: true}
		ranges, err := w.waitingRanges(ctx, t)
		if err != nil {
			return nil, err
		}
		for _, r := range ranges {
			n := r.depth()
			if level.Depth += n; n == 0 {
				continue
			}
			err := w.eachWaiting(ctx, t, r, func(m *deadletter.Message) bool {
				level.Oldest, level.Due = earlier(level.Oldest, m.Time), earlier(level.Due, m.State.Due)
				return false
			})
			if err != nil {
				return nil, err
			}
		}
		all = append(all, level)
	}
	return all, nil
}

func earlier(x, y time.Time) time.Time {
	if x.IsZero() || !y.IsZero() && y.Before(x) {
		return y
	}
	return x
}

// eachWaiting yields the waiting messages of a partition, until yield returns false.
func (w *waiting) eachWaiting(ctx context.Context, t *waitingTopic, r offsetRange, yield func(*deadletter.Message) bool) error {
	for next := r.start; next < r.end; {
		p, err := t.log.Read(ctx, r.partition, next)
		if err != nil {
			return err
		}
		for i := range p.Records {
			rec := &p.Records[i]
			if rec.Offset >= r.end {
				return nil
			}
			if r.settled.Contains(rec.Offset) {
				continue
			}
			if !yield(w.message(t, r.partition, rec)) {
				return nil
			}
		}
		if p.End && p.Next <= next {
			return nil // a transaction is open
		}
		next = p.Next
	}
	return nil
}

// message makes the message of a waiting record from its headers.
func (w *waiting) message(t *waitingTopic, partition int32, rec *topiclog.Record) *deadletter.Message {
	users, ours := record.SplitHeaders(rec.Headers)
	var room [20]driver.Header
	st, findings := driver.ParseHeaders(w.group, record.AppendTexts(room[:0], ours))
	var names record.Names
	m := record.CopyMessage(&deadletter.Message{
		Position: record.Position(partition, rec.Offset), Time: rec.Time.UTC(), State: st, Findings: findings, Writer: deadletter.WriterRedeliver,
		Key: rec.Key, Body: rec.Value, Headers: names.Append(make([]deadletter.Header, 0, len(users)), users),
	})
	if m.State.Due.IsZero() { // as its consumer does
		m.State.Due = limits.CeilMilli(rec.Time.Add(t.level).UTC())
	}
	m.State.Origin = w.topic
	if m.ID = st.ID; m.ID == "" {
		m.ID = record.ID(&sarama.ConsumerMessage{Topic: t.log.Topic, Partition: partition, Offset: rec.Offset, Timestamp: rec.Time, Headers: users})
	}
	return m
}

// Browse implements [mq.Waiting]. It reads all messages that wait on the filter's levels, in the order of the logs.
func (w *waiting) Browse(ctx context.Context, f deadletter.WaitingFilter) iter.Seq2[deadletter.WaitingMessage, error] {
	return func(yield func(deadletter.WaitingMessage, error) bool) {
		more := true
		if err := w.browse(ctx, f, func(m deadletter.WaitingMessage) bool {
			more = yield(m, nil)
			return more
		}); err != nil && more {
			yield(deadletter.WaitingMessage{}, err)
		}
	}
}

// browse calls yield with the waiting messages that match a filter, until yield returns false.
func (w *waiting) browse(ctx context.Context, f deadletter.WaitingFilter, yield func(deadletter.WaitingMessage) bool) error {
	if err := f.Check(); err != nil {
		return err
	}
	more := true
	for i := range w.levels {
		t := &w.levels[i]
		ranges, err := w.waitingRanges(ctx, t)
		if err != nil {
			return err
		}
		for _, r := range ranges {
			err := w.eachWaiting(ctx, t, r, func(m *deadletter.Message) bool {
				if ctx.Err() != nil {
					return false
				}
				more = !f.Match(m, t.level) || yield(deadletter.WaitingMessage{Message: m, Level: t.level, Place: t.log.Topic})
				return more
			})
			if err = errors.Join(err, ctx.Err()); err != nil || !more {
				return err
			}
		}
	}
	return nil
}

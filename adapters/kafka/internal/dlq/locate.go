package dlq

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/deadletter"
)

var _ deadletter.Locator = (*session)(nil)

// maxClockSkew is by how much the clock of a record's writer may be ahead of ours.
const maxClockSkew = time.Minute

// offsets are the offsets [from, to) of a partition.
type offsets struct {
	partition int32
	from, to  int64
}

// Locate implements [deadletter.Locator]. The records are not read, so it is unknown when they were written. Their outcome
// applies to records of up to now: if the DLQ is created again, another record may have the offset.
func (s *session) Locate(ctx context.Context, at []deadletter.Position) (deadletter.Located, error) {
	q, none := s.q, deadletter.Located{}
	if err := q.refresh(ctx); err != nil {
		return none, err
	}
	chosen := offsetsOf(at)
	if at == nil { // the records are deleted later, if the topic is still the same
		ids, err := cluster.Call(ctx, func() (cluster.TopicIDs, error) { return q.Admin.TopicIDs(q.Where.DLQ) })
		if err != nil {
			return none, err
		}
		s.topicID = ids[q.Where.DLQ]
	}
	var all []offsets
	until := time.Now().Add(maxClockSkew)
	for p := range q.partitionCount() {
		if at != nil && len(chosen[p]) == 0 {
			continue
		}
		start, end, err := q.bounds(ctx, p)
		if err != nil {
			return none, err
		}
		if end, err = q.log.StableEnd(ctx, p, end); err != nil {
			return none, err
		}
		if start >= end {
			continue
		}
		if at == nil {
			chosen[p] = []offsets{{p, start, end}}
		}
		if ok, err := q.canLocate(ctx, p, start, end, until); !ok || err != nil {
			return none, err
		}
		q.mu.Lock()
		for _, o := range chosen[p] {
			if o.from >= start && o.to <= end {
				all = append(all, q.ledger.left(o)...)
			}
		}
		q.mu.Unlock()
		if at == nil && s.claims {
			s.startPartition(p, start)
			s.markSeen(p, end)
		}
	}
	return deadletter.Located{Messages: messagesAt(all, until), Exact: !q.Foreign}, nil
}

// offsetsOf returns the offsets of positions, by partition. It skips positions that no message can have.
func offsetsOf(at []deadletter.Position) map[int32][]offsets {
	chosen := make(map[int32][]offsets)
	for _, position := range at {
		partition, offset, err := record.ParsePosition(string(position))
		if o := (offsets{partition, offset, offset + 1}); err == nil && !slices.Contains(chosen[partition], o) {
			chosen[partition] = append(chosen[partition], o)
		}
	}
	return chosen
}

// canLocate reports whether the outcomes of records in [start, end) are certain without their timestamps. They are not
// if a span may be of an earlier topic, all of whose records are older than those of this one, or if a record is later
// than until.
func (q *Queue) canLocate(ctx context.Context, partition int32, start, end int64, until time.Time) (bool, error) {
	later, err := q.log.FirstAfter(ctx, partition, until)
	if err != nil || later >= 0 && later < end {
		return false, err
	}
	q.mu.Lock()
	oldest, found := until, false
	for _, span := range q.ledger.removed[partition] {
		if last := time.UnixMilli(span.Last); span.Through >= start && span.From < end && last.Before(oldest) {
			oldest, found = last, true
		}
	}
	q.mu.Unlock()
	if !found {
		return true, nil
	}
	first, err := q.log.FirstAfter(ctx, partition, time.UnixMilli(-1)) // the log may begin with a gap
	if err != nil {
		return false, err
	}
	later, err = q.log.FirstAfter(ctx, partition, oldest)
	return later < 0 || later > first, err // the first record of this topic is not later than the span's last one
}

// left returns those of the offsets whose records are not removed.
func (l *ledger) left(o offsets) (rest []offsets) {
	for _, span := range l.removed[o.partition] {
		if span.Through < o.from || span.From >= o.to {
			continue
		}
		if span.From > o.from {
			rest = append(rest, offsets{o.partition, o.from, span.From})
		}
		o.from = span.Through + 1
	}
	if o.from < o.to {
		rest = append(rest, o)
	}
	return rest
}

// messagesAt returns a message for each offset.
func messagesAt(all []offsets, until time.Time) iter.Seq[*deadletter.Message] {
	return func(yield func(*deadletter.Message) bool) {
		for _, o := range all {
			for at := o.from; at < o.to; at++ {
				p := place{partition: o.partition, offset: at, from: at, at: -1, until: until.UnixMilli()} // a record may have no time
				if !yield(&deadletter.Message{Position: record.Position(o.partition, at), Native: p}) {
					return
				}
			}
		}
	}
}

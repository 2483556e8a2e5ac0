package dlq

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
)

// session implements [driver.Session]. Its locks are leases.
type session struct {
	*driver.Leases
	q      *Queue
	claims bool        // it may write
	stop   func() bool // forgets the session, which q.Close would close

	seen     map[int32]seenRange // by partition; only records that were seen may be deleted
	topicID  string              // of the DLQ when they were seen; empty if it is not known
	lastTrim time.Time
	writer   writer
}

// Connect implements [driver.DLQ].
func (q *Queue) Connect(context.Context) (driver.Session, error) {
	if q.open.Err() != nil {
		return nil, produce.ErrClosed
	}
	s := &session{q: q, seen: make(map[int32]seenRange), lastTrim: time.Now(), Leases: driver.NewLeases(q.open, q, q.Lease, driver.LeaseOptions{})}
	s.stop = context.AfterFunc(q.open, s.writer.close)
	return s, nil
}

// Lock implements [driver.Session].
func (s *session) Lock(ctx context.Context, lock string, h deadletter.Holder) error {
	q := s.q
	existing, err := q.findTopics(ctx)
	if err != nil {
		return err
	}
	if q.ForeignBack && existing[q.Where.ReplayTo] == nil {
		return fmt.Errorf("kafka: topic %s, the retry topic of %s, does not exist: name one that group %s reads", q.Where.ReplayTo, q.Where.DLQ, q.Where.Group)
	}
	if existing[q.Where.ReplayTo] == nil { // nobody would read the replayed messages
		return fmt.Errorf("kafka: %s, the retry topic of group %s, does not exist: let the group subscribe to %s first", q.Where.ReplayTo, q.Where.Group, q.Where.Origin)
	}
	if err := q.provisionState(ctx, existing); err != nil {
		return err
	}
	err = s.Leases.Lock(ctx, lock, h)
	s.claims = s.claims || err == nil
	return err
}

// Remove implements [driver.Session]. Adjacent messages share one record.
func (s *session) Remove(ctx context.Context, msgs []*deadletter.Message, entries ...driver.Entry) error {
	all, err := spansOf(msgs)
	if err != nil {
		return err
	}
	records := slices.Clone(entries)
	for _, span := range all {
		e, err := produce.JSONEntry(string(record.Position(span.partition, span.From)), span.removedSpan)
		if err != nil {
			return err
		}
		records = append(records, e)
	}
	if err := s.writeState(ctx, records); err != nil {
		return err
	}
	s.q.mu.Lock()
	for _, span := range all { // refresh will read the same
		s.q.ledger.removed[span.partition] = s.q.ledger.removed[span.partition].put(span.removedSpan)
	}
	s.q.mu.Unlock()
	if time.Since(s.lastTrim) > trimInterval {
		s.trim(ctx)
	}
	return nil
}

// writeState writes records to the state topic, in order, and returns when all are confirmed.
func (s *session) writeState(ctx context.Context, records []produce.Entry) error {
	if len(records) == 0 {
		return nil
	}
	return s.producerFor(ctx, 0).WriteEntries(ctx, s.q.SendTimeout, s.q.state.Topic, records...)
}

// partitionSpan is a span of one partition.
type partitionSpan struct {
	partition int32
	removedSpan
}

func spansOf(msgs []*deadletter.Message) (all []partitionSpan, err error) {
	places := make([]place, len(msgs))
	for i, m := range msgs {
		p, ok := m.Native.(place)
		if !ok {
			return nil, fmt.Errorf("kafka: message %s at %s was read by another adapter (%T)", m.ID, m.Position, m.Native)
		}
		places[i] = p
	}
	slices.SortFunc(places, func(x, y place) int {
		return cmp.Or(cmp.Compare(x.partition, y.partition), cmp.Compare(x.offset, y.offset))
	})
	for _, p := range places {
		if len(all) > 0 {
			last := &all[len(all)-1]
			if last.partition == p.partition && last.Through+1 == p.from {
				last.Through = p.offset
				last.First, last.Last = min(last.First, p.at), max(last.Last, p.at, p.until)
				continue
			}
		}
		all = append(all, partitionSpan{p.partition, removedSpan{From: p.from, Through: p.offset, First: p.at, Last: max(p.at, p.until), Outcome: deadletter.OutcomeReplayed}})
	}
	return all, nil
}

// Close implements [driver.Session]. It also trims the DLQ.
func (s *session) Close(ctx context.Context) error {
	defer s.writer.close()
	s.stop()
	if s.claims && s.Check() == nil {
		s.trim(ctx)
	}
	return s.Leases.Close(ctx)
}

package dlq

import (
	"context"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
)

// trimInterval is how often a working session deletes settled records.
const trimInterval = 10 * time.Second

// seenRange is the range of a partition that a session has read itself. Records are deleted only there.
type seenRange struct{ start, seen int64 }

func (s *session) startPartition(partition int32, start int64) {
	s.seen[partition] = seenRange{start, start}
}

// markSeen is called for every record in order, settled or not.
func (s *session) markSeen(partition int32, next int64) {
	if r, ok := s.seen[partition]; ok && next > r.seen {
		s.seen[partition] = seenRange{r.start, next}
	}
}

// trim deletes the settled beginning of the DLQ, and then forgets the outcomes of those records. It reports a
// failure, which costs disk space, but no messages.
func (s *session) trim(ctx context.Context) {
	s.lastTrim = time.Now()
	below := make(map[int32]int64)
	var forgotten []produce.Entry
	s.q.mu.Lock()
	for p, r := range s.seen {
		upTo := r.start // outcomes of records that the broker has deleted are forgotten, too
		if end := min(r.seen, s.q.ledger.prefix(p, r.start)); end > r.start && !s.q.Foreign {
			upTo, below[p] = end, end
		}
		for _, span := range s.q.ledger.removed[p] {
			if span.Through < upTo {
				forgotten = append(forgotten, produce.Tombstone(string(record.Position(p, span.From))))
			}
		}
	}
	s.q.mu.Unlock()
	if len(below)+len(forgotten) == 0 {
		return
	}
	var err error
	if len(below) > 0 {
		var ids cluster.TopicIDs
		if ids, err = s.q.Admin.TopicIDs(s.q.Where.DLQ); err == nil && ids.Differs(s.q.Where.DLQ, s.topicID) {
			clear(s.seen) // the records were in a topic that is gone; nobody has seen those of the new one
			return
		}
	}
	if len(below) > 0 && err == nil {
		err = s.q.Admin.DeleteRecords(s.q.Where.DLQ, below)
	}
	if err == nil {
		for p, offset := range below {
			s.seen[p] = seenRange{offset, s.seen[p].seen}
		}
		err = s.writeState(ctx, forgotten)
	}
	if err != nil {
		s.q.Sink.Event(redeliver.SubscriptionChanged{
			Origin: s.q.Where.Origin, Group: s.q.Where.Group, Change: redeliver.ChangeDeadLettersNotDeleted,
			Detail: "they stay; no message is lost", Err: err,
		})
	}
}

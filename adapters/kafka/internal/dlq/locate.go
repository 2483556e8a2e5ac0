package dlq

import (
	"context"
	"time"

	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
)

var _ driver.Locator = (*session)(nil)

// maxClockSkew is by how much the clock of a record's writer may be ahead of ours.
const maxClockSkew = time.Minute

// Locate implements [driver.Locator]. The records are not read, so it is unknown when they were written. Their outcome
// applies to records of up to now: if the DLQ is created again, another record may have the offset.
func (s *session) Locate(ctx context.Context, at []deadletter.Position) (msgs []*deadletter.Message, err error) {
	q := s.q
	if err := q.refresh(ctx); err != nil {
		return nil, err
	}
	type bounds struct{ start, end int64 }
	known, until := make(map[int32]bounds), time.Now().Add(maxClockSkew)
	for _, position := range at {
		partition, offset, err := record.ParsePosition(string(position))
		if err != nil || partition >= q.partitionCount() {
			continue // no message has this position
		}
		b, ok := known[partition]
		if !ok {
			if b.start, b.end, err = q.bounds(ctx, partition); err != nil {
				return nil, err
			}
			known[partition] = b
		}
		q.mu.Lock()
		removed := q.ledger.removed[partition].find(offset) >= 0
		q.mu.Unlock()
		if offset < b.start || offset >= b.end || removed {
			continue
		}
		msgs = append(msgs, &deadletter.Message{Position: position, Native: place{partition: partition, offset: offset, from: offset, until: until.UnixMilli()}})
	}
	return msgs, nil
}

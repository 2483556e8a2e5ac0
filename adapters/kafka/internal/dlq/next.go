package dlq

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	msgdriver "github.com/redeliver/redeliver/driver"
)

// scanBuffer holds one scanned message and is reused: callers want few messages.
type scanBuffer struct {
	message deadletter.Message
	place   place
	headers []deadletter.Header
	names   record.Names
}

// Next implements [driver.Reader].
func (r *reader) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		for len(r.page) > 0 {
			rec := &r.page[0]
			r.page = r.page[1:]
			m := r.message(&r.parts[r.at], rec)
			switch {
			case m == nil: // it is settled
			case !want(m):
				return nil, nil //nolint:nilnil // as the interface defines it
			default:
				m = record.CopyMessage(m)
				m.Native = r.buffer.place
				return m, nil
			}
		}
		if err := r.nextPage(ctx); err != nil {
			return nil, err
		}
	}
}

// message makes a record's message, in r.buffer. It returns nil for a settled record. The message points into the
// page.
func (r *reader) message(part *logPart, rec *topiclog.Record) *deadletter.Message {
	q := r.q
	from := part.seen
	part.seen = rec.Offset + 1
	q.mu.Lock()
	removed := q.ledger.isRemoved(part.partition, rec.Offset, rec.Time)
	q.mu.Unlock()
	if r.session != nil {
		r.session.markSeen(part.partition, part.seen)
	}
	if removed {
		return nil
	}
	v := &r.buffer
	v.place = place{partition: part.partition, offset: rec.Offset, from: from, at: rec.Time.UnixMilli()}
	users, ours := rec.Headers, []*sarama.RecordHeader(nil)
	if !q.Foreign { // in a foreign DLQ redeliver's headers are copies
		users, ours = record.SplitHeaders(rec.Headers)
	}
	v.headers = v.names.Append(v.headers[:0], users)
	m := &v.message
	*m = deadletter.Message{
		Position: record.Position(part.partition, rec.Offset), Time: rec.Time.UTC(),
		Key: rec.Key, Body: rec.Value, Headers: v.headers,
	}
	var room [20]msgdriver.Header
	var texts []msgdriver.Header
	if len(ours) > 0 {
		texts = record.AppendTexts(room[:0], ours)
	}
	driver.ReadHeaders(m, q.Where, texts, func() string { return q.idOf(m, v.place) })
	if rec.Unread > 0 {
		m.Headers, m.Mismatch = nil, fmt.Sprintf("it has %d headers, which are not read; nothing but a purge is possible", rec.Unread)
	}
	return m
}

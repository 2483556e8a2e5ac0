package kafka

import (
	"context"
	"strconv"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/deadletter"
)

// scanBuffer is reused for each scanned message, most of which the caller does not want.
type scanBuffer struct {
	message deadletter.Message
	place   deadPlace
	headers []deadletter.Header
	names   deadNames
}

// Next implements [driver.Reader].
func (s *deadReader) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		for len(s.page) > 0 {
			rec := &s.page[0]
			s.page = s.page[1:]
			m := s.message(&s.parts[s.at], rec)
			switch {
			case m == nil: // it is settled
			case want != nil && !want(m):
				return nil, nil //nolint:nilnil // as the interface defines it
			default:
				m = copyMessage(m)
				m.Native = s.buffer.place
				return m, nil
			}
		}
		if err := s.nextPage(ctx); err != nil {
			return nil, err
		}
	}
}

// message makes the message of a record in the buffer. It returns nil for a settled one. The message points into the
// page.
func (s *deadReader) message(part *deadPart, rec *topiclog.Record) *deadletter.Message {
	q := s.q
	from := part.seen
	part.seen = rec.Offset + 1
	q.mu.Lock()
	out := q.ledger.isRemoved(part.partition, rec.Offset, rec.Time)
	q.mu.Unlock()
	if s.session != nil {
		s.session.markSeen(part.partition, part.seen)
	}
	if out {
		return nil
	}
	v := &s.buffer
	v.place = deadPlace{part.partition, rec.Offset, from, rec.Time.UnixMilli()}
	users, ours := rec.Headers, []*sarama.RecordHeader(nil)
	if !q.foreign { // other programs copy a producer's headers, ours included
		users, ours = record.SplitHeaders(rec.Headers)
	}
	v.headers = v.names.append(v.headers[:0], users)
	m := &v.message
	*m = deadletter.Message{
		Position: positionOf(part.partition, rec.Offset), Time: rec.Time.UTC(),
		Key: rec.Key, Body: rec.Value, Headers: v.headers,
	}
	var room [20]redeliver.Header
	var texts []redeliver.Header
	if len(ours) > 0 {
		texts = record.AppendTexts(room[:0], ours)
	}
	deadletter.ReadHeaders(m, q.info, texts, func() string { return q.idOf(m, v.place) })
	return m
}

// deadNames keeps the names of users' headers, of which a DLQ has few, so that messages share them. The zero value is
// ready to use.
type deadNames map[string]string

// Bounds of the names that are kept.
const (
	maxKeptNames = 256
	maxKeptName  = 128 // bytes
)

// append appends headers. The values still alias the record.
func (n *deadNames) append(to []deadletter.Header, users []*sarama.RecordHeader) []deadletter.Header {
	for _, h := range users {
		to = append(to, deadletter.Header{Name: n.of(h.Key), Value: h.Value})
	}
	return to
}

func (n *deadNames) of(key []byte) string {
	if name, ok := (*n)[string(key)]; ok {
		return name
	}
	name := string(key)
	if len(name) <= maxKeptName && len(*n) < maxKeptNames {
		if *n == nil {
			*n = make(deadNames)
		}
		(*n)[name] = name
	}
	return name
}

// copyMessage copies a message and what it points to, because its page has megabytes and would live as long as it.
func copyMessage(scanned *deadletter.Message) *deadletter.Message {
	m := new(deadletter.Message)
	*m = *scanned
	size := len(m.Key) + len(m.Body)
	for _, headers := range [...][]deadletter.Header{m.Headers, m.Foreign} {
		for i := range headers {
			size += len(headers[i].Value)
		}
	}
	room := make(record.Arena, 0, size)
	m.Key, m.Body = room.Copy(m.Key), room.Copy(m.Body)
	m.Headers, m.Foreign = copyHeaders(&room, m.Headers), copyHeaders(&room, m.Foreign)
	return m
}

// copyHeaders copies headers into room. It returns nil for nil.
func copyHeaders(room *record.Arena, from []deadletter.Header) []deadletter.Header {
	if from == nil {
		return nil
	}
	to := make([]deadletter.Header, len(from))
	for i, h := range from {
		to[i] = deadletter.Header{Name: h.Name, Value: room.Copy(h.Value)}
	}
	return to
}

// positionOf returns the position of a record in a DLQ.
func positionOf(partition int32, offset int64) deadletter.Position {
	var room [32]byte
	b := strconv.AppendInt(room[:0], int64(partition), 10)
	b = append(b, '/')
	return deadletter.Position(strconv.AppendInt(b, offset, 10))
}

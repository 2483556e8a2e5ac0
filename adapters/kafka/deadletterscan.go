package kafka

import (
	"context"
	"io"
	"strconv"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// place is where a dead letter stands. The records before it, down to from, are no
// messages: markers of transactions, or what compaction left out.
type deadPlace struct {
	partition    int32
	offset, from int64
	at           int64 // its timestamp, in Unix milliseconds
}

// deadReader reads the DLQ, one partition after another. It implements [driver.Reader].
type deadReader struct {
	q     *deadQueue
	claim *deadSession // nil where nothing is to be removed
	parts []deadPart
	at    int       // of parts
	page  []fetched // read, and not yet looked at
	ahead deadAhead
	sieve deadSieve
}

type deadPart struct {
	partition int32
	seen      int64 // the offset behind the latest record that was looked at
	next, end int64 // to be read
}

// Open implements [driver.Session].
func (c *deadSession) Open(ctx context.Context, from deadletter.From) (driver.Reader, error) {
	q := c.q
	if err := c.leases.Check(); err != nil {
		return nil, err
	}
	if err := q.refresh(ctx); err != nil {
		return nil, err
	}
	s := &deadReader{q: q, ahead: deadAhead{log: &q.log}, sieve: deadSieve{headers: make([]deadletter.Header, 0, 8)}}
	if from == deadletter.Start && c.claims { // what begins elsewhere does not see all there is
		s.claim = c
	}
	for p := range q.width() {
		start, end, err := q.bounds(ctx, p)
		if err != nil {
			return nil, err
		}
		if s.claim != nil {
			c.begin(p, start)
		}
		if from == deadletter.End {
			start = end
		}
		s.parts = append(s.parts, deadPart{partition: p, seen: start, next: start, end: end})
	}
	return s, nil
}

// turn reads the next page; io.EOF when there is none.
func (s *deadReader) turn(ctx context.Context) error {
	for s.at < len(s.parts) && s.parts[s.at].next >= s.parts[s.at].end {
		s.at++
	}
	if s.at == len(s.parts) {
		return s.again(ctx)
	}
	part := &s.parts[s.at]
	p, err := s.ahead.read(ctx, part)
	if err != nil {
		return err
	}
	s.page = p.records
	for i, rec := range s.page { // what came after the scan began is not its own
		if rec.offset >= part.end {
			s.page = s.page[:i]
			p.next = part.end
			break
		}
	}
	part.next = p.next
	if p.end {
		part.end = min(part.end, p.next)
	}
	return nil
}

// again says that the end is reached, and looks how far it has moved meanwhile.
func (s *deadReader) again(ctx context.Context) error {
	if err := s.q.refresh(ctx); err != nil {
		return err
	}
	for i := range s.parts {
		_, end, err := s.q.log.bounds(ctx, s.parts[i].partition)
		if err != nil {
			return err
		}
		s.parts[i].end = max(s.parts[i].next, end)
	}
	s.at = 0
	return io.EOF
}

// Close implements [driver.Reader].
func (s *deadReader) Close(context.Context) error {
	s.ahead.close()
	return nil
}

// idOf is the id of a message whose headers say none: as it was in its origin.
func (q *deadQueue) idOf(m *deadletter.Message, place deadPlace) string {
	for _, h := range m.Headers {
		if h.Name == UUIDHeader && len(h.Value) > 0 {
			return engine.GivenID(string(h.Value))
		}
	}
	if src := m.State.Source; src.Known {
		return limits.ShortID(q.info.Origin + "/" + strconv.FormatInt(int64(src.Partition), 10) + "/" + strconv.FormatInt(src.Offset, 10))
	}
	return limits.ShortID(q.info.DLQ + "/" + placeKey(place.partition, place.offset))
}

package dlq

import (
	"context"
	"errors"
	"io"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wirename"
)

// place is the place of a dead letter. The offsets in [from, offset) have no records: they are markers of
// transactions or were compacted.
type place struct {
	partition    int32
	offset, from int64
	at           int64 // timestamp in Unix milliseconds
	until        int64 // set for a record that was not read: its timestamp is at most this
}

// reader reads the DLQ, one partition after another. It implements [driver.Reader].
type reader struct {
	q       *Queue
	session *session // nil if nothing is to be removed
	parts   []logPart
	at      int               // index into parts
	page    []topiclog.Record // records that were not processed yet
	buffer  scanBuffer

	ahead chan fetched // gets the next page, which is read while the current one is processed; nil if no read is running
	ctx   context.Context
	stop  context.CancelFunc // ends that read
}

type fetched struct {
	page topiclog.Page
	err  error
}

type logPart struct {
	partition int32
	seen      int64 // the offset behind the last processed record
	next, end int64 // the range to read
}

// Open implements [driver.Session].
func (s *session) Open(ctx context.Context, from deadletter.From) (driver.Reader, error) {
	q := s.q
	if err := q.refresh(ctx); err != nil {
		return nil, err
	}
	r := &reader{q: q, buffer: scanBuffer{headers: make([]deadletter.Header, 0, 8)}}
	if from == deadletter.FromStart && s.claims { // a scan that begins elsewhere does not see all records
		r.session = s
		ids, err := cluster.Call(ctx, func() (cluster.TopicIDs, error) { return q.Admin.TopicIDs(q.Where.DLQ) })
		if err != nil {
			return nil, err
		}
		s.topicID = ids[q.Where.DLQ]
	}
	for p := range q.partitionCount() {
		start, end, err := q.bounds(ctx, p)
		if err != nil {
			return nil, err
		}
		if r.session != nil {
			s.startPartition(p, start)
		}
		switch from {
		case deadletter.FromStart:
		case deadletter.FromEnd:
			start = end
		case deadletter.FromTail:
			start = max(start, end-driver.TailSize)
		}
		r.parts = append(r.parts, logPart{partition: p, seen: start, next: start, end: end})
	}
	r.ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	return r, nil
}

// readPage reads the next page of a partition, and begins to read the page after it, if there is one. ctx bounds only
// the wait.
func (r *reader) readPage(ctx context.Context, part *logPart) (topiclog.Page, error) {
	if r.ahead == nil {
		r.startRead(part.partition, part.next)
	}
	select {
	case f := <-r.ahead:
		r.ahead = nil
		if f.err == nil && !f.page.End && f.page.Next < part.end {
			r.startRead(part.partition, f.page.Next)
		}
		return f.page, f.err
	case <-ctx.Done():
		return topiclog.Page{}, ctx.Err()
	}
}

func (r *reader) startRead(partition int32, next int64) {
	ahead := make(chan fetched, 1)
	r.ahead = ahead
	go func() {
		p, err := r.q.log.Read(r.ctx, partition, next)
		if errors.Is(err, topiclog.ErrTooLarge) {
			if behind := r.q.behindRemoved(partition, next); behind > next {
				p, err = topiclog.Page{Next: behind}, nil
			}
		}
		ahead <- fetched{p, err}
	}()
}

// behindRemoved returns the first offset from one on that is not removed.
func (q *Queue) behindRemoved(partition int32, from int64) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ledger.prefix(partition, from)
}

// nextPage reads the next page. It returns io.EOF at the end.
func (r *reader) nextPage(ctx context.Context) error {
	for r.at < len(r.parts) && r.parts[r.at].next >= r.parts[r.at].end {
		r.at++
	}
	if r.at == len(r.parts) {
		return r.extendEnds(ctx)
	}
	part := &r.parts[r.at]
	p, err := r.readPage(ctx, part)
	if err != nil {
		return err
	}
	r.page = p.Records
	for i, rec := range r.page { // records that were written after the scan began are left out
		if rec.Offset >= part.end {
			r.page = r.page[:i]
			p.Next = part.end
			break
		}
	}
	part.next = p.Next
	if p.End {
		part.end = min(part.end, p.Next)
	}
	return nil
}

// extendEnds moves the ends of a scan to the present ends of the log, and returns io.EOF.
func (r *reader) extendEnds(ctx context.Context) error {
	if err := r.q.refresh(ctx); err != nil {
		return err
	}
	for i := range r.parts {
		_, end, err := r.q.log.Bounds(ctx, r.parts[i].partition)
		if err != nil {
			return err
		}
		r.parts[i].end = max(r.parts[i].next, end)
	}
	r.at = 0
	return io.EOF
}

// Close implements [driver.Reader].
func (r *reader) Close(context.Context) error {
	r.stop()
	if r.ahead != nil {
		<-r.ahead
	}
	return nil
}

// idOf returns the id that a message without an id header had in its origin.
func (q *Queue) idOf(m *deadletter.Message, place place) string {
	for _, h := range m.Headers {
		if h.Name == wirename.WatermillUUID && len(h.Value) > 0 {
			return engine.GivenID(string(h.Value))
		}
	}
	if src := m.State.Source; src.Known {
		return engine.PlaceID(q.Where.Origin, src.Partition, src.Offset, src.Timestamp)
	}
	return engine.PlaceID(q.Where.DLQ, place.partition, place.offset, m.Time)
}

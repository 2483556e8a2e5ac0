package pubsub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// deadScan reads a shelf by the numbers of its letters. It implements deadletter.Scan.
type deadScan struct {
	q         *deadLetters
	next, end int64
	marks     map[deadletter.Position]deadletter.Outcome

	base int64  // the file that is read
	l    *lines // nil before the first
	out  spans
}

// deadPlace is where a letter lies.
type deadPlace struct {
	base, n int64
	uuid    string
}

// Scan implements [deadletter.Queue]. From the start it waits until nothing has come from
// the topic for DeadLetterConfig.Quiet.
func (q *deadLetters) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	if from == deadletter.Start {
		if err := q.catchUp(ctx); err != nil {
			return nil, err
		}
	}
	s, err := q.scan(ctx, from)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// scan reads what is on the shelf now.
func (q *deadLetters) scan(ctx context.Context, from deadletter.From) (*deadScan, error) {
	if err := q.take(ctx); err != nil {
		return nil, err
	}
	s := &deadScan{q: q, next: firstLetter}
	if err := s.again(); err != nil {
		return nil, err
	}
	if from == deadletter.End {
		s.next = s.end
	}
	return s, nil
}

// again looks how far the letters go, what is marked and what is settled.
func (s *deadScan) again() (err error) {
	st, err := s.q.state()
	if err != nil {
		return err
	}
	s.marks = st.Marks
	if s.l != nil {
		if s.out, err = s.q.settled(s.base); err != nil {
			return err
		}
	}
	s.end, err = s.q.end()
	return err
}

// Next implements [deadletter.Scan].
func (s *deadScan) Next(ctx context.Context) (*deadletter.Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if s.next >= s.end {
			if err := s.q.take(ctx); err != nil { // whoever took letters may have died
				return nil, err
			}
			if err := s.again(); err != nil {
				return nil, err
			}
			return nil, io.EOF
		}
		one, err := s.read()
		if err != nil {
			return nil, err
		}
		if one == nil {
			continue
		}
		s.next = one.N + 1
		if !s.out.has(one.N) {
			return s.message(one), nil
		}
	}
}

// read returns the next letter of those that lie before the end; nil where another file
// begins.
func (s *deadScan) read() (*letter, error) {
	if s.l == nil {
		return nil, s.turn(0)
	}
	for {
		one, err := s.l.letter()
		if errors.Is(err, io.EOF) {
			return nil, s.turn(s.base)
		}
		if err != nil || one.N >= s.next {
			return one, err
		}
	}
}

// turn opens the file behind a base. Where there is none, all that lay before the end
// has been settled.
func (s *deadScan) turn(behind int64) error {
	bases, err := s.q.bases()
	if err != nil {
		return err
	}
	for i, base := range bases {
		if base <= behind || i+1 < len(bases) && bases[i+1] <= s.next {
			continue
		}
		// What is settled first: the letters are gone before that is.
		out, err := s.q.settled(base)
		if err != nil {
			return err
		}
		l, err := s.q.open(base)
		if err != nil {
			return err
		}
		if l == nil {
			continue
		}
		s.l.close()
		s.base, s.l, s.out = base, l, out
		return nil
	}
	s.next = s.end
	return nil
}

// Close implements [deadletter.Scan].
func (s *deadScan) Close() error {
	s.l.close()
	s.l, s.next, s.end = nil, 0, 0
	return nil
}

// propUUID is the property of a dead letter that has the UUID, where that is not its id.
const propUUID = "uuid"

// message makes the message of a letter.
func (s *deadScan) message(l *letter) *deadletter.Message {
	at := deadletter.Position(strconv.FormatInt(l.N, 10))
	rec, c := newRecord(l.message(), true, nil)
	m := &deadletter.Message{
		Position: at, Time: l.At, Body: rec.payload, Mark: s.marks[at], Native: deadPlace{s.base, l.N, rec.uuid},
	}
	for _, name := range slices.Sorted(maps.Keys(rec.metadata)) {
		m.Headers = append(m.Headers, deadletter.Header{Name: name, Value: []byte(rec.metadata[name])})
	}
	var ours []redeliver.Header
	if c != nil {
		ours = c.headers
	}
	deadletter.Read(m, s.q.info, ours, rec.id)
	if m.ID != rec.uuid {
		m.Properties = []deadletter.Header{{Name: propUUID, Value: []byte(rec.uuid)}}
	}
	return m
}

// recordOfDead is a dead letter as it is published.
func recordOfDead(m *deadletter.Message, headers []deadletter.Header) (*record, error) {
	r := &record{uuid: m.ID, payload: m.Body, metadata: make(map[string]string, len(headers))}
	for _, p := range m.Properties {
		if p.Name == propUUID {
			r.uuid = string(p.Value)
		}
	}
	for _, h := range headers {
		if _, twice := r.metadata[h.Name]; twice {
			return nil, fmt.Errorf("pubsub: message %s has the header %s twice, and metadata cannot", m.ID, h.Name)
		}
		r.metadata[h.Name] = string(h.Value)
	}
	return r, nil
}

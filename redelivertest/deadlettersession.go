package redelivertest

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
)

// deadSession implements [driver.Session].
type deadSession struct {
	d      *deadQueue
	holder deadletter.Holder
	locked bool
}

// Check implements [driver.Session]. Only the end of the DLQ ends its locks.
func (s *deadSession) Check() error {
	if s.locked && s.d.do(func(*queue) {}) != nil {
		return fmt.Errorf("%w: %s", deadletter.ErrClaimLost, s.d.q.dlq())
	}
	return nil
}

// Lock implements [driver.Session].
func (s *deadSession) Lock(_ context.Context, lock string, h deadletter.Holder) (err error) {
	if failed := s.d.do(func(q *queue) {
		if other := q.dlqState.locks[lock]; other != nil {
			err = &deadletter.HeldError{DLQ: q.dlq(), Holder: other.holder}
			return
		}
		if q.dlqState.locks == nil {
			q.dlqState.locks = make(map[string]*deadSession)
		}
		q.dlqState.locks[lock], s.holder, s.locked = s, h, true
	}); failed != nil {
		return failed
	}
	return err
}

// Open implements [driver.Session].
func (s *deadSession) Open(_ context.Context, from deadletter.From) (driver.Reader, error) {
	r := &deadReader{s: s, from: from}
	return r, s.d.do(func(q *queue) {
		if r.end = q.dlqState.written; from == deadletter.FromEnd {
			r.next = r.end
		}
	})
}

// Write implements [driver.Session].
func (s *deadSession) Write(ctx context.Context, to driver.Destination, msgs []*deadletter.Message) []error {
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		if errs[i] = ctx.Err(); errs[i] != nil {
			continue
		}
		if err := s.d.do(func(q *queue) {
			if to == driver.DestinationDLQ {
				errs[i] = q.addLocked(m)
			} else if errs[i] = q.refusesLocked(PlaceLevels); errs[i] == nil {
				st := driver.ReplayState(m, s.d.Info())
				q.waitLocked(0, recordFrom(m, m.Headers).with(&st), nil, -1)
			}
		}); err != nil {
			errs[i] = err
		}
	}
	return errs
}

// addLocked writes a dead letter into the DLQ with the headers that it has.
func (q *queue) addLocked(m *deadletter.Message) error {
	if err := q.refusesLocked(PlaceDLQ); err != nil {
		return err
	}
	rec := recordFrom(m, slices.Concat(m.Headers, m.Foreign))
	if m.Writer == deadletter.WriterRedeliver {
		rec = rec.with(&m.State)
	}
	q.deadLetterLocked(rec, nil)
	return nil
}

// Remove implements [driver.Session].
func (s *deadSession) Remove(_ context.Context, msgs []*deadletter.Message, entries ...driver.Entry) error {
	return s.d.do(func(q *queue) {
		q.dlqState.addEntries(entries)
		gone := make(map[any]bool, len(msgs))
		for _, m := range msgs {
			gone[m.Native] = true
		}
		if len(gone) > 0 {
			q.dead = slices.DeleteFunc(q.dead, func(c deadRecord) bool { return gone[c.n] })
			q.b.wakeAllLocked()
		}
	})
}

// Close implements [driver.Session].
func (s *deadSession) Close(context.Context) error {
	s.d.q.b.mu.Lock()
	defer s.d.q.b.mu.Unlock()
	for lock, owner := range s.d.q.dlqState.locks {
		if owner == s {
			delete(s.d.q.dlqState.locks, lock)
		}
	}
	return nil
}

// deadReader reads the DLQ by the numbers of its records. It implements [driver.Reader].
type deadReader struct {
	s         *deadSession
	from      deadletter.From
	next, end int64
}

// Next implements [driver.Reader].
func (r *deadReader) Next(_ context.Context, want func(*deadletter.Message) bool) (m *deadletter.Message, err error) {
	err = r.s.d.do(func(q *queue) {
		i, _ := slices.BinarySearchFunc(q.dead, r.next, func(c deadRecord, n int64) int { return int(c.n - n) })
		if i < len(q.dead) && q.dead[i].n < r.end {
			r.next = q.dead[i].n + 1
			m = r.s.d.message(&q.dead[i])
		} else if r.from == deadletter.FromEnd {
			r.next, r.end = max(r.next, r.end), q.dlqState.written
		}
	})
	switch {
	case err != nil:
		return nil, err
	case m == nil:
		return nil, io.EOF
	case !want(m):
		return nil, nil //nolint:nilnil // see Next
	}
	return m, nil
}

// Close implements [driver.Reader].
func (r *deadReader) Close(context.Context) error { return nil }

package adapter

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
)

// source claims rows for the engine. Its goroutine, work, calls the database. It implements driver.Source.
type source struct {
	q       *Queue
	lease   string // the name of this source in the rows that it has claimed
	rows    chan *Row
	lost    chan struct{}   // closed when the lease has ended
	changed chan struct{}   // has a value if a field has changed
	stopped chan struct{}   // closed when work claims no more rows
	ctx     context.Context // ends before the last round of work
	end     context.CancelFunc
	flushed chan struct{} // closed when work has ended

	mu                sync.Mutex
	room              int // rows for which the engine has room
	claimed           int // rows that are on their way to it
	stopping          bool
	settled, returned []int64
}

func newSource(q *Queue) *source {
	s := &source{
		q: q, lease: rand.Text(), rows: make(chan *Row), lost: make(chan struct{}),
		changed: make(chan struct{}, 1), stopped: make(chan struct{}), flushed: make(chan struct{}),
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// Messages implements [driver.Source].
func (s *source) Messages() <-chan *Row { return s.rows }

// Lost implements [driver.Source].
func (s *source) Lost() <-chan struct{} { return s.lost }

// Parse implements [driver.Source]. Only the store writes states: they are trusted.
func (s *source) Parse(m *driver.Message[*Row]) error {
	row := m.Record
	s.change(func() { s.room--; s.claimed-- })
	m.Place, m.Size = "messages", len(row.Body)
	err := json.Unmarshal([]byte(row.headers), &row.Headers)
	if row.state != "" {
		s.q.Arrive(m, delayqueue.Arrival{Written: row.Written}, decodeState(row.state))
	} else {
		s.q.ReportForeignHeaders(m, maps.All(row.Headers))
	}
	if err != nil {
		m.Step, m.Err = driver.StepDeadLetter, &redeliver.UndecodableError{Err: err}
	}
	return nil
}

// Accept implements [driver.Source].
func (s *source) Accept(n int) { s.change(func() { s.room = n }) }

// Settle implements [driver.Source].
func (s *source) Settle(m *driver.Message[*Row]) {
	s.change(func() { s.settled = append(s.settled, m.Record.seq) })
}

// Return implements [driver.Source]. While a handler still runs, others get the row only when the lease has ended.
func (s *source) Return(m *driver.Message[*Row], _ time.Duration, runs bool) {
	if !runs {
		s.change(func() { s.returned = append(s.returned, m.Record.seq) })
	}
}

// Commit implements [driver.Source]: work deletes settled rows as fast as the database can.
func (s *source) Commit() {}

// Stop implements [driver.Source].
func (s *source) Stop() <-chan struct{} {
	s.change(func() { s.stopping = true })
	return s.stopped
}

// Flush implements [driver.Source]. If ctx ends first, the rows that are not deleted run again.
func (s *source) Flush(ctx context.Context) {
	s.end()
	select {
	case <-s.flushed:
	case <-ctx.Done():
	}
}

// change changes fields, and wakes work.
func (s *source) change(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// work deletes and returns rows, renews the lease and claims rows, in rounds, until the source ends.
func (s *source) work() {
	defer close(s.flushed)
	poll := time.NewTicker(s.q.Poll)
	defer poll.Stop()
	stopped := sync.OnceFunc(func() { close(s.stopped) })
	expiry := time.AfterFunc(s.q.Lease, sync.OnceFunc(func() { close(s.lost) })) // also while the database does not answer
	defer expiry.Stop()
	renewed, reads := time.Now(), true
	for {
		last := s.ctx.Err() != nil // read before the rows: Flush comes after all calls of Settle and Return
		s.mu.Lock()
		settled, returned, room, stopping := s.settled, s.returned, s.room-s.claimed, s.stopping
		s.settled, s.returned = nil, nil
		s.mu.Unlock()
		begun := time.Now()
		renew := begun.Sub(renewed) > s.q.Lease/3
		err := s.update(settled, returned, renew)
		if err != nil {
			slog.Warn("settled rows are deleted later", "err", err)
			s.change(func() { s.settled, s.returned = append(settled, s.settled...), append(returned, s.returned...) })
			<-poll.C
		} else if renew {
			renewed = begun
			expiry.Reset(time.Until(begun.Add(s.q.Lease)))
		}
		if last || s.isLost() {
			return
		}
		if stopping {
			stopped()
		} else if reads && room > 0 {
			if err := s.claim(room); err != nil { // it may have claimed rows nevertheless, whose lease must end
				slog.Warn("another source will claim rows", "err", err)
				<-poll.C
				close(s.rows)
				reads = false
			}
		}
		select {
		case <-s.changed:
		case <-poll.C:
		case <-s.ctx.Done():
		}
	}
}

func (s *source) isLost() bool {
	select {
	case <-s.lost:
		return true
	default:
		return false
	}
}

// update deletes and returns rows, and renews the lease.
func (s *source) update(settled, returned []int64, renew bool) error {
	if len(settled) == 0 && len(returned) == 0 && !renew {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.q.Lease/3)
	defer cancel()
	tx, err := s.q.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	for _, seq := range settled {
		if _, err := tx.ExecContext(ctx, `DELETE FROM messages WHERE seq = $1 AND lease = $2`, seq, s.lease); err != nil {
			return err
		}
	}
	for _, seq := range returned {
		if _, err := tx.ExecContext(ctx, `UPDATE messages SET leased_until = 0 WHERE seq = $1 AND lease = $2`, seq, s.lease); err != nil {
			return err
		}
	}
	if renew {
		_, err := tx.ExecContext(ctx, `UPDATE messages SET leased_until = $1 WHERE lease = $2 AND leased_until > 0`, time.Now().Add(s.q.Lease).UnixMilli(), s.lease)
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}

// claim claims at most room rows that are due, and passes them to the engine.
func (s *source) claim(room int) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.q.Lease/3)
	defer cancel()
	now := time.Now()
	found, err := s.q.db.QueryContext(ctx, `UPDATE messages SET lease = $1, leased_until = $2 WHERE seq IN (
		SELECT seq FROM messages WHERE due <= $3 AND leased_until <= $4 ORDER BY due LIMIT $5
	) RETURNING seq, id, body, headers, state, written`, s.lease, now.Add(s.q.Lease).UnixMilli(), now.UnixMilli(), now.UnixMilli(), room)
	if err != nil {
		return err
	}
	defer found.Close()
	var rows []*Row
	for found.Next() {
		row, written := new(Row), int64(0)
		if err := found.Scan(&row.seq, &row.ID, &row.Body, &row.headers, &row.state, &written); err != nil {
			return err
		}
		row.Written = time.UnixMilli(written)
		rows = append(rows, row)
	}
	if err := found.Err(); err != nil {
		return err
	}
	s.change(func() { s.claimed += len(rows) })
	for _, row := range rows {
		select {
		case s.rows <- row:
		case <-s.ctx.Done(): // the drain timeout is over
			s.change(func() { s.returned = append(s.returned, row.seq) })
		}
	}
	return nil
}

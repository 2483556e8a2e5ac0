package adapter

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	dlq "github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/driver"
)

// rawHeaders is the property of a dead letter whose headers are not JSON. It has the text that is in the table.
const rawHeaders = "headers"

// deadLetters is the table of dead letters. It implements driver.DLQ of package deadletter/driver. The locks are leases in its state.
type deadLetters struct {
	db    *sql.DB
	info  deadletter.Info
	lease time.Duration
	ctx   context.Context // ends with Close: a lease that nobody renews expires
	end   context.CancelFunc
}

// OpenDeadLetters returns the DLQ of a queue, for package deadletter and the console. lease is how long others wait for the runner of
// a replay that has died.
func OpenDeadLetters(db *sql.DB, origin, group string, lease time.Duration) deadletter.Queue {
	d := &deadLetters{db: db, lease: lease, info: deadletter.Info{
		Broker: "sql", DLQ: "dead_letters", Origin: origin, Group: group, ReplayTo: "messages", ReadEffect: deadletter.NoReadEffect,
	}}
	d.ctx, d.end = context.WithCancel(context.Background())
	return dlq.New(d)
}

// Info implements [dlq.DLQ].
func (d *deadLetters) Info() deadletter.Info { return d.info }

// Count implements [dlq.DLQ].
func (d *deadLetters) Count(ctx context.Context) (n int64, exact bool, err error) {
	err = d.db.QueryRowContext(ctx, `SELECT count(*) FROM dead_letters`).Scan(&n)
	return n, true, err
}

// Oldest implements [dlq.DLQ].
func (d *deadLetters) Oldest(ctx context.Context) (at time.Time, ok bool, err error) {
	var written sql.NullInt64
	err = d.db.QueryRowContext(ctx, `SELECT min(written) FROM dead_letters`).Scan(&written)
	return time.UnixMilli(written.Int64), written.Valid, err
}

// Retention implements [dlq.DLQ]: rows stay.
func (d *deadLetters) Retention(context.Context) (time.Duration, error) { return 0, nil }

// DropLimit implements [dlq.DLQ].
func (d *deadLetters) DropLimit(context.Context) (string, error) { return "", nil }

// Load implements [dlq.DLQ].
func (d *deadLetters) Load(ctx context.Context) (state dlq.State, err error) {
	err = d.inTransaction(ctx, func(tx *sql.Tx) error {
		state, err = load(ctx, tx)
		return err
	})
	return state, err
}

func load(ctx context.Context, tx *sql.Tx) (dlq.State, error) {
	rows, err := tx.QueryContext(ctx, `SELECT name, value FROM dead_letter_state`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	state := make(dlq.State)
	for rows.Next() {
		var name string
		var value []byte
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		state[name] = value
	}
	return state, rows.Err()
}

// Append implements [dlq.DLQ].
func (d *deadLetters) Append(ctx context.Context, entries ...dlq.Entry) error {
	return d.inTransaction(ctx, func(tx *sql.Tx) error { return appendTo(ctx, tx, entries) })
}

// appendTo writes the entries that count.
func appendTo(ctx context.Context, tx *sql.Tx, entries []dlq.Entry) error {
	state, err := load(ctx, tx)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch {
		case !state.Put(e):
			continue
		case e.Value == nil:
			_, err = tx.ExecContext(ctx, `DELETE FROM dead_letter_state WHERE name = $1`, e.Key)
		default:
			_, err = tx.ExecContext(ctx, `INSERT INTO dead_letter_state (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2`, e.Key, e.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inTransaction calls f in a transaction that excludes all others.
func (d *deadLetters) inTransaction(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// LockHolder implements [dlq.DLQ].
func (d *deadLetters) LockHolder(ctx context.Context, lock string) (h deadletter.Holder, ok bool, err error) {
	return dlq.LeaseHolder(ctx, d, lock)
}

// Connect implements [dlq.DLQ].
func (d *deadLetters) Connect(context.Context) (dlq.Session, error) {
	return &session{dlq.NewLeases(d.ctx, d, d.lease, dlq.LeaseOptions{}), d}, d.ctx.Err()
}

// Close implements [dlq.DLQ].
func (d *deadLetters) Close() error {
	d.end()
	return nil
}

// session implements [dlq.Session]. Its Leases implement Lock, Check and Close.
type session struct {
	*dlq.Leases
	d *deadLetters
}

// Write implements [dlq.Session].
func (s *session) Write(ctx context.Context, to dlq.Destination, msgs []*deadletter.Message) []error {
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		errs[i] = s.writeOne(ctx, to, m)
	}
	return errs
}

func (s *session) writeOne(ctx context.Context, to dlq.Destination, m *deadletter.Message) error {
	st, headers := m.State, m.Headers
	if to == dlq.DestinationGroup {
		st = dlq.ReplayState(m, s.d.info)
	} else {
		headers = slices.Concat(m.Headers, m.Foreign)
	}
	row := &Row{ID: m.ID, Body: m.Body}
	state, err := encodeState(&st)
	if err == nil {
		row.headers, err = encodeHeaders(m, headers)
	}
	switch {
	case err != nil:
		return err
	case to == dlq.DestinationGroup:
		return insert(ctx, s.d.db, row, state, time.Time{})
	case m.Writer != deadletter.WriterRedeliver: // its state is not redeliver's
		return insertDead(ctx, s.d.db, row, "")
	default:
		return insertDead(ctx, s.d.db, row, state)
	}
}

func encodeHeaders(m *deadletter.Message, headers []deadletter.Header) (string, error) {
	for _, p := range m.Properties {
		if p.Name == rawHeaders {
			return string(p.Value), nil
		}
	}
	all := make(map[string]string)
	for _, h := range headers {
		all[h.Name] = string(h.Value)
	}
	text, err := json.Marshal(all)
	return string(text), err
}

// Remove implements [dlq.Session]. One transaction writes the record and deletes the rows.
func (s *session) Remove(ctx context.Context, msgs []*deadletter.Message, entries ...dlq.Entry) error {
	return s.d.inTransaction(ctx, func(tx *sql.Tx) error {
		if err := appendTo(ctx, tx, entries); err != nil {
			return err
		}
		for _, m := range msgs {
			if _, err := tx.ExecContext(ctx, `DELETE FROM dead_letters WHERE seq = $1`, m.Native); err != nil {
				return fmt.Errorf("deleting %s: %w", m.Position, err)
			}
		}
		return nil
	})
}

// Open implements [dlq.Session].
func (s *session) Open(ctx context.Context, from deadletter.From) (dlq.Reader, error) {
	r := &reader{d: s.d, follows: from == deadletter.FromEnd}
	err := r.findEnd(ctx)
	if r.follows {
		r.last = r.end
	}
	return r, err
}

// reader reads rows in the order of their numbers. It implements [dlq.Reader].
type reader struct {
	d         *deadLetters
	follows   bool  // it also returns the rows that come later
	last, end int64 // the number of the last row that was read, and that of the last one to read
}

func (r *reader) findEnd(ctx context.Context) error {
	return r.d.db.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM dead_letters`).Scan(&r.end)
}

// Next implements [dlq.Reader].
func (r *reader) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	var id, headers, state string
	var body []byte
	var written int64
	err := r.d.db.QueryRowContext(ctx, `SELECT seq, id, body, headers, state, written FROM dead_letters WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT 1`,
		r.last, r.end).Scan(&r.last, &id, &body, &headers, &state, &written)
	if errors.Is(err, sql.ErrNoRows) {
		if r.follows {
			if err := r.findEnd(ctx); err != nil {
				return nil, err
			}
		}
		return nil, io.EOF
	}
	if err != nil {
		return nil, err
	}
	m := &deadletter.Message{Position: deadletter.Position(strconv.FormatInt(r.last, 10)), Time: time.UnixMilli(written), Body: body, Native: r.last}
	var users map[string]string
	if json.Unmarshal([]byte(headers), &users) != nil {
		m.Properties = append(m.Properties, deadletter.Header{Name: rawHeaders, Value: []byte(headers)})
	}
	for name, value := range users {
		m.Headers = append(m.Headers, deadletter.Header{Name: name, Value: []byte(value)})
	}
	var ours []driver.Header
	if state != "" {
		ours = decodeState(state)
	}
	dlq.ReadHeaders(m, r.d.info, ours, func() string { return id })
	if !want(m) {
		return nil, nil //nolint:nilnil // as the interface defines it
	}
	return m, nil
}

// Close implements [dlq.Reader].
func (r *reader) Close(context.Context) error { return nil }

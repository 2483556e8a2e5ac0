// Package adapter is an example of an adapter of your own: a queue in a database table, with retries and a DLQ on
// redeliver's engine. docs/how-to/write-an-adapter.md explains it, and integration/sqlqueue runs it on SQLite.
// PostgreSQL needs other types in the schema, and FOR UPDATE SKIP LOCKED in claim.
//
// A message is a row, and a retry is a new row with a due time and redeliver's headers. A process claims rows for a
// time, the lease, and renews it. If the process dies, others get its rows when the lease ends. Rows have no order.
package adapter

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters"
	"github.com/redeliver/redeliver/driver"
)

// Schema creates the tables. AUTOINCREMENT keeps SQLite from using the number of a deleted row again.
const Schema = `
CREATE TABLE IF NOT EXISTS messages (
	seq          INTEGER PRIMARY KEY AUTOINCREMENT,
	id           TEXT    NOT NULL,           -- the message's; its copies have the same
	body         BLOB,
	headers      TEXT    NOT NULL,           -- the producer's, as a JSON object
	state        TEXT    NOT NULL,           -- redeliver's headers, likewise; empty for a new message
	due          INTEGER NOT NULL,           -- nobody reads the row before; all times are Unix milliseconds
	written      INTEGER NOT NULL,
	lease        TEXT    NOT NULL DEFAULT '', -- who has claimed the row
	leased_until INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS messages_due ON messages (due, leased_until);
CREATE TABLE IF NOT EXISTS dead_letters (
	seq     INTEGER PRIMARY KEY AUTOINCREMENT,
	id      TEXT    NOT NULL,
	body    BLOB,
	headers TEXT    NOT NULL,
	state   TEXT    NOT NULL,
	written INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS dead_letter_state (name TEXT PRIMARY KEY, value BLOB NOT NULL);`

// Row is a message as the handler gets it.
type Row struct {
	ID      string
	Body    []byte
	Headers map[string]string
	Written time.Time

	seq            int64
	headers, state string // as in the table
	tries          int    // to write a copy
}

// Queue is a queue and its handlers.
type Queue struct {
	// Lease is how long others wait for the rows of a process that has died, and Poll the time between two claims.
	Lease, Poll time.Duration

	*adapters.Consumer[*Row] // for Messages and Close

	db *sql.DB
}

// Open returns a queue in a database that has the tables of Schema.
func Open(db *sql.DB, cfg adapters.Config[*Row]) (*Queue, error) {
	cfg.Codec, cfg.Store = codec{}, store{db}
	if cfg.Handler == nil && cfg.BatchHandler == nil {
		cfg.ToWatermill = toWatermill
	}
	consumer, err := adapters.New(cfg)
	return &Queue{30 * time.Second, 200 * time.Millisecond, consumer, db}, err
}

// Add adds a message.
func Add(ctx context.Context, db *sql.DB, id string, body []byte, headers map[string]string) error {
	text, err := json.Marshal(headers)
	if err != nil {
		return fmt.Errorf("the headers of %s: %w", id, err)
	}
	return insert(ctx, db, &Row{ID: id, Body: body, headers: string(text)}, "", time.Time{})
}

func insert(ctx context.Context, db *sql.DB, row *Row, state string, due time.Time) error {
	_, err := db.ExecContext(ctx, `INSERT INTO messages (id, body, headers, state, due, written) VALUES ($1, $2, $3, $4, $5, $6)`,
		row.ID, row.Body, row.headers, state, due.UnixMilli(), time.Now().UnixMilli())
	return err
}

func insertDead(ctx context.Context, db *sql.DB, row *Row, state string) error {
	_, err := db.ExecContext(ctx, `INSERT INTO dead_letters (id, body, headers, state, written) VALUES ($1, $2, $3, $4, $5)`,
		row.ID, row.Body, row.headers, state, time.Now().UnixMilli())
	return err
}

// Run handles messages until ctx ends, and returns nil, or until Close is called, and returns an error. After a source
// has failed, it starts another.
func (q *Queue) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		s := newSource(q)
		go s.work()
		err := q.Consumer.Run(ctx, s)
		s.end()
		if err != nil {
			return err
		}
	}
	return nil
}

// maxOutageTries is how many errors of one write count as an outage, in which nothing new begins.
const maxOutageTries = 8

// store writes copies of messages. It implements driver.Store.
type store struct{ db *sql.DB }

// Write implements [driver.Store]. It returns at once, and confirms when the database has committed.
func (s store) Write(ctx context.Context, to driver.Place, m *driver.Message[*Row], st *redeliver.State, done driver.Done) {
	go func() {
		row, where := m.Record, "messages"
		state, err := encodeState(st)
		switch {
		case err != nil:
		case to == driver.PlaceLevel:
			err = insert(ctx, s.db, row, state, st.Due)
		case to == driver.PlaceTopic: // a delayed publish is due
			err = insert(ctx, s.db, row, "", time.Time{})
		case to == driver.PlaceDLQ:
			where = "dead_letters"
			err = insertDead(ctx, s.db, row, state)
		default:
			err = fmt.Errorf("there is no place %d", to)
		}
		if row.tries++; err != nil && row.tries > maxOutageTries { // the cause may be this row alone
			err = fmt.Errorf("%w: %w", driver.ErrDoubtful, err)
		}
		done.Confirmed(where, err)
	}()
}

func encodeState(st *redeliver.State) (string, error) {
	all := make(map[string]string)
	for name, value := range driver.StateHeaders(st) {
		all[name] = string(value)
	}
	text, err := json.Marshal(all)
	return string(text), err
}

// decodeState returns no headers if the text is damaged, which Arrive reports.
func decodeState(text string) (headers []driver.Header) {
	var all map[string]string
	_ = json.Unmarshal([]byte(text), &all)
	for name, value := range all {
		headers = append(headers, driver.Header{Name: name, Value: value})
	}
	return headers
}

// codec returns the parts of a row. It implements driver.Codec.
type codec struct{}

// toWatermill makes the message of a row for a Router.
func toWatermill(m *driver.Message[*Row]) (*message.Message, error) {
	msg := message.NewMessage(m.Record.ID, slices.Clone(m.Record.Body))
	maps.Copy(msg.Metadata, m.Record.Headers)
	return msg, nil
}

// Key implements [driver.Codec].
func (codec) Key(*driver.Message[*Row]) []byte { return nil }

// Body implements [driver.Codec].
func (codec) Body(m *driver.Message[*Row]) []byte { return m.Record.Body }

// Headers implements [driver.Codec].
func (codec) Headers(m *driver.Message[*Row]) redeliver.Headers {
	return message.Metadata(m.Record.Headers)
}

// Age implements [driver.Codec].
func (codec) Age(m *driver.Message[*Row]) (state *redeliver.State, created, expires time.Time) {
	return nil, m.Record.Written, time.Time{}
}

// State implements [driver.Codec]. The engine calls it only for rows without a state of their own.
func (codec) State(m *driver.Message[*Row], st *redeliver.State) {
	st.ID = m.Record.ID
	st.Source = redeliver.Source{Known: true, Offset: m.Record.seq, Timestamp: m.Record.Written}
}

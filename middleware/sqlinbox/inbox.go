// Package sqlinbox does the work of a handler and marks its message as handled in one transaction of a SQL database. So a message
// that comes again changes nothing, whenever a process has died:
//
//	inbox, err := sqlinbox.New(db, sqlinbox.Config{})
//	...
//	err = inbox.CreateTable(ctx)
//	...
//	charge := func(ctx context.Context, m types.Message) error {
//		return inbox.Do(ctx, func(ctx context.Context, tx *sql.Tx) error {
//			_, err := tx.ExecContext(ctx, `INSERT INTO charges VALUES ($1, $2)`, customer, cents)
//			return err
//		})
//	}
//
// It works in a Watermill handler behind middleware.Retry and in the handler of a drop-in call, with PostgreSQL and
// SQLite: the database must support INSERT ... ON CONFLICT DO NOTHING, and parameters named $1.
package sqlinbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/wirename"
)

// DefaultTable is the default name of the table.
const DefaultTable = "redeliver_inbox"

// ErrNoMessage is the error of Do outside of a handler.
var ErrNoMessage = errors.New("sqlinbox: the context is not that of a handler: pass on the one that the handler got")

// Config configures an Inbox.
type Config struct {
	// Table is the name of the table, with its schema if necessary: letters, digits and underscores, with at most one
	// dot. Default "redeliver_inbox".
	Table string
}

// Inbox marks messages as handled in a table. It is safe for concurrent use.
type Inbox struct {
	db    *sql.DB
	table string
}

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// New returns an inbox in a database that the caller keeps and closes. It does not connect. A nil db and an invalid
// name are a [redeliver.ConfigError].
func New(db *sql.DB, cfg Config) (*Inbox, error) {
	var ps check.Problems
	if db == nil {
		ps.Add("db", "nil", "it is required")
	}
	cfg.Table = cmp.Or(cfg.Table, DefaultTable)
	if !tableName.MatchString(cfg.Table) {
		ps.Add("Config.Table", cfg.Table, "must be letters, digits and underscores, with one dot at most")
	}
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("sqlinbox: %w", err)
	}
	return &Inbox{db, cfg.Table}, nil
}

// CreateTable creates the table unless it exists. In your own migration use:
//
//	CREATE TABLE redeliver_inbox (message CHAR(64) PRIMARY KEY, handled_at BIGINT NOT NULL)
//
// The column message has the SHA-256 of the message's group, origin and id, and handled_at the time in milliseconds since 1970.
func (i *Inbox) CreateTable(ctx context.Context) error {
	return i.exec(ctx, "creating the table", "CREATE TABLE IF NOT EXISTS "+i.table+" (message CHAR(64) PRIMARY KEY, handled_at BIGINT NOT NULL)")
}

func (i *Inbox) exec(ctx context.Context, what, query string, args ...any) error {
	if _, err := i.db.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("sqlinbox: %s %s: %w", what, i.table, err)
	}
	return nil
}

// Do runs work in a transaction that also marks the message of ctx as handled. If the message was already handled, Do
// returns nil and does not run work. If work fails or panics, nothing is changed, and Do returns the error of work
// unchanged. A commit that returns an error may have succeeded: the next attempt finds out.
//
// A message whose id others may have (derived:..., on RabbitMQ from its content, on Kafka from an offset without a timestamp) is
// not marked: its work runs at each attempt. A handler must call Do once: a second call finds the mark of the first.
//
// If copies of a message run at the same time, one waits for the other, or fails and is retried; that depends on the database.
// work must not commit or roll back.
func (i *Inbox) Do(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
	state, ok := redeliver.FromContext(ctx)
	if !ok {
		return ErrNoMessage
	}
	tx, err := i.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqlinbox: beginning a transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing

	if !strings.HasPrefix(state.ID, wirename.DerivedID) {
		if handled, err := i.mark(ctx, tx, &state); err != nil || handled {
			return err
		}
	}
	if err := work(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlinbox: committing: %w", err)
	}
	return nil
}

// mark marks a message in a transaction. It reports whether the message was already handled.
func (i *Inbox) mark(ctx context.Context, tx *sql.Tx, state *redeliver.State) (handled bool, err error) {
	insert := "INSERT INTO " + i.table + " (message, handled_at) VALUES ($1, $2) ON CONFLICT DO NOTHING" //nolint:gosec // New has checked the name
	result, err := tx.ExecContext(ctx, insert, keyOf(state), time.Now().UnixMilli())
	if err != nil {
		return false, fmt.Errorf("sqlinbox: marking the message in %s: %w", i.table, err)
	}
	marked, err := result.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("sqlinbox: marking the message in %s: %w", i.table, err)
	}
	return marked == 0, nil
}

// keyOf returns the key of a message: of fixed length, and without bytes that a database may refuse.
func keyOf(s *redeliver.State) string {
	sum := sha256.Sum256([]byte(s.Group + "\x00" + s.Origin + "\x00" + s.ID))
	return hex.EncodeToString(sum[:])
}

// DeleteOlder deletes the marks of messages that were handled longer than age ago. A copy that comes later is handled again, so age
// should exceed the retention of the DLQ: its messages can be replayed.
func (i *Inbox) DeleteOlder(ctx context.Context, age time.Duration) error {
	return i.exec(ctx, "deleting old marks of", "DELETE FROM "+i.table+" WHERE handled_at < $1", time.Now().Add(-age).UnixMilli())
}

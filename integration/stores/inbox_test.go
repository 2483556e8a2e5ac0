// Package stores_test tests the stores of middleware on real databases.
package stores_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware/sqlinbox"
)

func TestInboxOnSQLite(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "inbox.db")+"?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	testInbox(t, db)
}

var errWork = errors.New("no funds")

// testInbox checks that the work and the mark of a message are one transaction, for each group.
func testInbox(t *testing.T, db *sql.DB) {
	t.Helper()
	inbox, err := sqlinbox.New(db, sqlinbox.Config{Table: "inbox"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the table may exist
		if err := inbox.CreateTable(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE charges (message TEXT)"); err != nil {
		t.Fatal(err)
	}
	of := func(s redeliver.State) context.Context { return redeliver.NewContext(t.Context(), s) }
	charge := func(fails error) func(context.Context, *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error {
			st, _ := redeliver.FromContext(ctx)
			_, err := tx.ExecContext(ctx, "INSERT INTO charges VALUES ($1)", st.Group+st.ID)
			return errors.Join(err, fails)
		}
	}
	charged := func(message string) (n int) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM charges WHERE message = $1", message).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}

	// A failure changes nothing, and the next attempt works. A copy, and a replay, change nothing.
	first := redeliver.State{Group: "billing", Origin: "orders", ID: "1\x00\xff"}
	if err := inbox.Do(of(first), charge(errWork)); !errors.Is(err, errWork) {
		t.Errorf("a failure: %v", err)
	}
	for range 3 {
		if err := inbox.Do(of(first), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO charges VALUES ('first')")
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	if n := charged("first"); n != 1 {
		t.Errorf("a message was charged %d times, want once", n)
	}

	// A panic changes nothing.
	panics := redeliver.State{Group: "billing", Origin: "orders", ID: "panics"}
	func() {
		defer func() { _ = recover() }()
		_ = inbox.Do(of(panics), func(ctx context.Context, tx *sql.Tx) error {
			_ = charge(nil)(ctx, tx)
			panic("boom")
		})
	}()
	if n := charged("billingpanics"); n != 0 {
		t.Errorf("%d charges were left by a panic", n)
	}

	// Another group has its own marks.
	for _, group := range []string{"billing", "shipping", "billing"} {
		if err := inbox.Do(of(redeliver.State{Group: group, Origin: "orders", ID: "2"}), charge(nil)); err != nil {
			t.Error(err)
		}
	}
	if b, s := charged("billing2"), charged("shipping2"); b != 1 || s != 1 {
		t.Errorf("charged %d times for billing and %d times for shipping, want once each", b, s)
	}

	// Equal messages may share an id that was derived from their content: none of them is a duplicate.
	for range 2 {
		if err := inbox.Do(of(redeliver.State{Group: "billing", Origin: "orders", ID: "derived:5"}), charge(nil)); err != nil {
			t.Error(err)
		}
	}
	if n := charged("billingderived:5"); n != 2 {
		t.Errorf("two messages with a derived id were charged %d times, want twice", n)
	}

	// Of copies that run at the same time one succeeds. Another may fail, and is retried.
	const copies, messages = 8, 20
	var failed atomic.Int64
	var running sync.WaitGroup
	for n := range messages {
		for range copies {
			running.Go(func() {
				for range 100 {
					if inbox.Do(of(redeliver.State{Group: "both", Origin: "orders", ID: fmt.Sprint(n)}), charge(nil)) == nil {
						return
					}
				}
				failed.Add(1)
			})
		}
	}
	running.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d copies failed", n)
	}
	for n := range messages {
		if got := charged(fmt.Sprint("both", n)); got != 1 {
			t.Errorf("message %d was charged %d times, want once", n, got)
		}
	}

	// A deleted mark does not count. A young one is kept.
	if err := inbox.DeleteOlder(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	again := redeliver.State{Group: "billing", Origin: "orders", ID: "2"}
	if err := inbox.Do(of(again), charge(nil)); err != nil || charged("billing2") != 1 {
		t.Errorf("a young mark is gone: %v", err)
	}
	if err := inbox.DeleteOlder(t.Context(), -time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := inbox.Do(of(again), charge(nil)); err != nil || charged("billing2") != 2 {
		t.Errorf("an old mark is left: %v", err)
	}
}

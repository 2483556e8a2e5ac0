package sqlinbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware/sqlinbox"
)

// unreachable is a database that does not answer. integration/stores tests real ones.
type unreachable struct{}

var errDown = errors.New("the database is down")

func (unreachable) Connect(context.Context) (driver.Conn, error) { return nil, errDown }
func (unreachable) Driver() driver.Driver                        { return nil }

func TestNewRefusesABadConfiguration(t *testing.T) {
	db := sql.OpenDB(unreachable{})
	defer db.Close()
	if _, err := sqlinbox.New(nil, sqlinbox.Config{}); !errors.Is(err, redeliver.ErrConfig) {
		t.Errorf("without a database: %v", err)
	}
	for name, fits := range map[string]bool{"": true, "inbox": true, "shop.inbox_2": true, "2": false, "a.b.c": false, "inbox; DROP TABLE charges": false, `"inbox"`: false, "inbox\n": false} {
		if _, err := sqlinbox.New(db, sqlinbox.Config{Table: name}); fits != (err == nil) || err != nil && !errors.Is(err, redeliver.ErrConfig) {
			t.Errorf("the table %q: %v", name, err)
		}
	}
}

func TestDoNeedsAMessageAndADatabase(t *testing.T) {
	db := sql.OpenDB(unreachable{})
	defer db.Close()
	inbox, err := sqlinbox.New(db, sqlinbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	work := func(context.Context, *sql.Tx) error {
		t.Error("the work ran")
		return nil
	}
	if err := inbox.Do(t.Context(), work); !errors.Is(err, sqlinbox.ErrNoMessage) {
		t.Errorf("without a message: %v", err)
	}
	if err := inbox.Do(redeliver.NewContext(t.Context(), redeliver.State{ID: "1"}), work); !errors.Is(err, errDown) {
		t.Errorf("without a database: %v", err)
	}
	if err := inbox.CreateTable(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("creating the table: %v", err)
	}
}

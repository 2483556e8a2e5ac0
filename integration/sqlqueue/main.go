// Command sqlqueue runs examples/adapter, a queue in a table, on a file of SQLite:
//
//	go run ./integration/sqlqueue -add 9
//
// It adds messages and handles them until the queue is empty. Of three messages one succeeds, one fails once, and one fails
// always and goes to the DLQ. It prints a line for each attempt. The queue is in the file -db, so it continues
// where an earlier run, or one that was killed, has stopped.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters"
	"github.com/redeliver/redeliver/examples/adapter"
)

var errDeclined = errors.New("card declined")

func main() {
	file := flag.String("db", "queue.db", "the file of the database")
	add := flag.Int("add", 0, "how many messages to add")
	flag.Parse()
	if err := run(context.Background(), *file, *add); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, file string, add int) error {
	db, err := openFile(file, "FULL")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := addMessages(ctx, db, add); err != nil {
		return err
	}
	q, err := adapter.Open(db, adapters.Config[*adapter.Row]{
		Origin: "messages", Group: "messages", Handler: handle, Sink: redeliver.NewSlogSink(slog.Default()),
		Policy: redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(300 * time.Millisecond)}, MaxInFlight: 10,
	})
	if err != nil {
		return err
	}
	q.Lease = time.Second
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		look := time.NewTicker(q.Poll)
		defer look.Stop()
		for left := 1; left > 0; <-look.C {
			if err := db.QueryRowContext(ctx, `SELECT count(*) FROM messages`).Scan(&left); err != nil {
				log.Print(err)
			}
		}
	}()
	return errors.Join(q.Run(ctx), q.Close(context.WithoutCancel(ctx)))
}

// addMessages adds n messages.
func addMessages(ctx context.Context, db *sql.DB, n int) error {
	for i := range n {
		id := messageID(i)
		if err := adapter.Add(ctx, db, id, []byte("order "+id), map[string]string{"number": strconv.Itoa(i)}); err != nil {
			return err
		}
	}
	return nil
}

// messageID returns the id of a message, which says how often it fails.
func messageID(i int) string { return fmt.Sprintf("%s-%d", []string{"good", "once", "bad"}[i%3], i) }

// openFile opens a database. With synchronous FULL its commits are on the disk when they return; with OFF they survive the
// end of the process only.
func openFile(file, synchronous string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous("+synchronous+")&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)            // writers of SQLite exclude each other, and wait for a connection more fairly than for a lock
	_, err = db.Exec(adapter.Schema) //nolint:noctx // a file
	return db, err
}

// handle prints the attempt, when it was due at the earliest, and when it ran.
func handle(ctx context.Context, row *adapter.Row) error {
	st, _ := redeliver.FromContext(ctx)
	fmt.Println("attempt", row.ID, st.Attempt(), st.Due.UnixMilli(), time.Now().UnixMilli())
	<-time.After(20 * time.Millisecond) // the work
	if strings.HasPrefix(row.ID, "bad") || strings.HasPrefix(row.ID, "once") && st.Attempt() == 1 {
		return errDeclined
	}
	return nil
}

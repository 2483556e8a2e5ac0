package main

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters"
	"github.com/redeliver/redeliver/examples/adapter"
)

// A process that cannot renew its lease ends its handlers before others get their messages. The attempt does not count.
func TestALostLeaseEndsItsHandlers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "queue.db")
	other := newQueue(t, file, 1)
	db, err := openFile(file, "OFF")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	runs, count := make(chan context.Context, 10), new(atomic.Int32)
	q, err := adapter.Open(db, adapters.Config[*adapter.Row]{Origin: "messages", Group: "messages", Handler: func(ctx context.Context, _ *adapter.Row) error {
		runs <- ctx
		if count.Add(1) > 1 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}})
	if err != nil {
		t.Fatal(err)
	}
	q.Lease, q.Poll = 300*time.Millisecond, 20*time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := q.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer stop()

	first := await(t, runs)
	lock, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	await(t, first.Done()) // no timeout ends it so soon
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	if st, _ := redeliver.FromContext(await(t, runs)); st.Attempt() != 1 {
		t.Errorf("attempt %d runs, want 1 again", st.Attempt())
	}
}

// await returns the next value of a channel.
func await[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		t.Fatal("nothing happened within a minute")
	}
	return v
}

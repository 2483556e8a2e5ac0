package adaptertest

import (
	"errors"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// aged checks Oldest, Retention and DropLimit. None need be reported.
func aged(d *dlqFixture) {
	ctx := d.withTimeout()
	began := time.Now()
	msgs, ids := numberedMessages(3)
	d.makeDeadLetters(failAlways, msgs...)
	q := d.queue()
	if keeps, err := q.Retention(ctx); err != nil && !errors.Is(err, deadletter.ErrNotReported) || keeps < 0 {
		d.Errorf("a message is kept for %s: %v", keeps, err)
	}
	if _, err := q.DropLimit(ctx); err != nil && !errors.Is(err, deadletter.ErrNotReported) {
		d.Errorf("the drop limit: %v", err)
	}
	const clocks = time.Second // a broker may truncate times to seconds
	oldest := func(after time.Time) time.Time {
		d.Helper()
		at, ok, err := q.Oldest(ctx)
		if err != nil || ok && (at.Before(after.Add(-clocks)) || at.After(time.Now().Add(clocks))) {
			d.Fatalf("the oldest came at %s (%v), want from %s to %s: %v", at, ok, after, time.Now(), err)
		}
		return at
	}
	first := oldest(began)
	remove := func(ids ...string) {
		d.Helper()
		if _, err := deadletter.Purge(ctx, q, deadletter.PurgeOptions{Who: "ann@ops", Why: "aged", Filter: deadletter.Filter{IDs: ids}}); err != nil {
			d.Fatal(err)
		}
	}
	remove(ids[0])
	oldest(first) // of the remaining messages
	remove(ids[1:]...)
	if at, ok, err := q.Oldest(ctx); err != nil || ok {
		d.Errorf("the oldest of an empty DLQ came at %s: %v", at, err)
	}
}

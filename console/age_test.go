package console

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// agedStub is a costly DLQ whose broker reports the age of its messages.
type agedStub struct {
	*stub
	oldest time.Duration
	drops  string
	broken error
	count  atomic.Int64
}

func (q *agedStub) Count(context.Context) (int64, bool, error) { return q.count.Load(), false, nil }

func (q *agedStub) Oldest(context.Context) (time.Time, bool, error) {
	return time.Now().Add(-q.oldest), q.oldest > 0, q.broken
}

func (q *agedStub) Retention(context.Context) (time.Duration, error) { return q.keeps, q.broken }
func (q *agedStub) DropLimit(context.Context) (string, error)        { return q.drops, q.broken }

func newAgedStub(name string) *agedStub {
	q := &agedStub{stub: newStub(name, 10)}
	q.info.ReadEffect = "a delivery"
	q.count.Store(10)
	return q
}

// For a DLQ that was not read, the page shows the age of the oldest message, when the broker drops it, and how the
// count changes. Values that are not reported are not errors.
func TestAgeAndRetentionAreReportedWithoutAScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, silent := newAgedStub("old"), newAgedStub("silent")
		old.oldest, old.keeps, old.drops = 13*24*time.Hour+13*time.Hour+30*time.Minute, 14*24*time.Hour, "max-length=10 by <policy>"
		silent.broken = errors.New("not your right")
		c, err := New(Config{Queues: []Queue{{Queue: old}, {Queue: silent}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		<-time.After(35 * time.Second)
		get(t, c, "/").has(t, "13 days dropped in 10 h bounded", "no change in 30 s", "The broker does not report how old the oldest message is")
		get(t, c, page("dlq", old)).has(t, "Oldest 13 days", "Dropped by the broker in 10 h or when full max-length=10 by <policy>", "Change no change in 30 s")
		get(t, c, page("dlq", silent)).has(t, "Oldest — The broker does not report how old", "Dropped by the broker — The broker does not report how long it keeps a message")
		if a := get(t, c, "/"); strings.Contains(a.text(), "no answer") || old.scanned() > 0 {
			t.Errorf("it has trouble, or was looked at %d times", old.scanned())
		}
		old.count.Store(1210)
		silent.count.Store(3)
		<-time.After(50 * time.Minute)
		get(t, c, "/").has(t, "1,200 more in 50 min", "7 fewer in 50 min")
		<-time.After(2 * time.Hour)
		get(t, c, "/").has(t, "no change in 55 min")
	})
}

// If the broker drops no messages, the page says that they are kept forever.
func TestUnlimitedRetentionIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newAgedStub("kept")
		c, err := New(Config{Queues: []Queue{{Queue: q}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		<-time.After(time.Second)
		get(t, c, page("dlq", q)).has(t, "Dropped by the broker never")
	})
}

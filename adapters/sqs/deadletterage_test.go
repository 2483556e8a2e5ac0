package sqs

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// Retention returns the queue's current retention.
func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		q := openTestDLQ(t, f, "orders", 1, "")
		defer q.Close()
		f.Set("orders-dlq", "MessageRetentionPeriod", "") // as some servers
		if keeps, err := q.own.Retention(t.Context()); !errors.Is(err, deadletter.ErrNotReported) {
			t.Errorf("a queue without a retention keeps messages for %s: %v", keeps, err)
		}
		f.Set("orders-dlq", "MessageRetentionPeriod", "1209600")
		if keeps, err := q.own.Retention(t.Context()); err != nil || keeps != 14*24*time.Hour {
			t.Errorf("it keeps messages for %s: %v", keeps, err)
		}
		if at, ok, err := q.Oldest(t.Context()); ok || err != nil {
			t.Errorf("SQS does not report the age of the oldest message, but it is from %s: %v", at, err)
		}
	})
}

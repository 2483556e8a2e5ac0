package console

import (
	"testing"
	"testing/synctest"
	"time"
)

// A DLQ that is slow to read is read less often, and does not delay the counts of others.
func TestReadingTakesATenthOfTheTimeAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long, short := newStub("long", 10), newStub("short", 10)
		long.slow = 4 * time.Minute
		c, err := New(Config{Queues: []Queue{{Queue: long}, {Queue: short}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		<-time.After(time.Minute)
		get(t, c, "/").has(t, "20 dead letters")
		<-time.After(24 * time.Hour)
		if n := long.scanned(); n < 20 || n > 33 { // 4 minutes of each 44 and a bit
			t.Errorf("it was read %d times in a day, for %s each", n, long.slow)
		}
		if n := short.scanned(); n < 500 {
			t.Errorf("the other was read %d times", n)
		}
	})
}

// A DLQ whose count does not change is not read at each count.
func TestAnUnchangedDLQIsReadOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newStub("still", 10)
		c, err := New(Config{Queues: []Queue{{Queue: q}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		<-time.After(time.Hour)
		if n := q.scanned(); n < 50 || n > 62 {
			t.Errorf("it was read %d times in an hour", n)
		}
	})
}

// The state of a broker that hangs is shown as stale.
func TestTheStateOfAHangingBrokerIsShownAsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newStub("hangs", 10)
		q.gate = make(chan struct{}, 1)
		q.gate <- struct{}{} // it answers once
		c, err := New(Config{Queues: []Queue{{Queue: q}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		<-time.After(3 * time.Minute)
		get(t, c, "/").has(t, "old, 3 min ago")
		get(t, c, page("dlq", q)).has(t, "This data is old.")
		<-time.After(5 * time.Minute)
		get(t, c, page("dlq", q)).has(t, "The broker does not answer")
	})
}

// While a DLQ can be counted and not read, the time of the first failure stays.
func TestFailingReadsKeepTheTimeOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newStub("unread", 3)
		q.scanErr = errSilent
		c, err := New(Config{Queues: []Queue{{Queue: q}}, Refresh: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		<-time.After(time.Hour)
		synctest.Wait()
		failing := c.svc.allQueues()[0]
		failing.mu.Lock()
		defer failing.mu.Unlock()
		if last := failing.last; last.ReadError == "" || time.Since(last.Since) < 55*time.Minute {
			t.Errorf("after an hour it says %q since %s", last.ReadError, time.Since(last.Since))
		}
	})
}

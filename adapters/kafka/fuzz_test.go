package kafka

import (
	"math"
	"testing"
	"time"

	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
)

// FuzzLedger applies two records of a DLQ's state topic, to which other programs may write. Garbage settles only the
// records that it names, and the spans stay in order.
func FuzzLedger(f *testing.F) {
	f.Add("0/5", []byte(`{"through":9,"first":0,"last":9000000000000,"outcome":"replayed","task":"1"}`), "0/2", []byte(`{"through":4,"last":1,"outcome":"purged"}`))
	f.Add("mark/0/5", []byte(`{"outcome":"quarantined","time":5}`), "mark/0/5", []byte(nil))
	f.Add("lock/claim", []byte(`{"epoch":3,"token":"a"}`), "lock/claim", []byte(`{"epoch":3,"token":"b"}`))
	f.Add("task/1", []byte(`{"id":"1"}`), "want/1", []byte("pause"))
	f.Add("0/9223372036854775807", []byte(`{"through":9223372036854775807,"outcome":"replayed"}`), "0/-9223372036854775808", []byte(`{"through":1,"outcome":"replayed"}`))
	f.Add("-1/+5", []byte(`{"through":5,"outcome":"replayed"}`), "9/", []byte(`[]`))
	f.Fuzz(func(t *testing.T, key string, value []byte, key2 string, value2 []byte) {
		l := newLedger()
		l.apply([]byte(key), value)
		l.apply([]byte(key2), value2)
		for partition, ss := range l.removed {
			if partition < 0 {
				t.Errorf("there is no partition %d", partition)
			}
			for i, s := range ss {
				if s.From < 0 || s.Through < s.From || i > 0 && s.From <= ss[i-1].From {
					t.Errorf("partition %d has %+v", partition, ss)
				}
			}
			for _, start := range []int64{0, 1, 5, math.MaxInt64} {
				if got := l.prefix(partition, start); got < start {
					t.Errorf("from %d on everything is removed up to %d: %+v", start, got, ss)
				}
			}
			l.isRemoved(partition, 5, time.UnixMilli(1))
		}
		driver.LeaseHolder(l.state, driver.ClaimLock, time.UnixMilli(1))
	})
}

// FuzzLevelOfTopic parses arbitrary names of topics. If one is a delay topic, its level must make the same name.
func FuzzLevelOfTopic(f *testing.F) {
	f.Add("orders.billing.retry.10s", "orders", "billing")
	f.Add("orders.billing.retry.90s", "orders", "billing")
	f.Add("orders.a_2eb.retry.1m30s", "orders", "a.b")
	f.Add("orders.billing.retry.", "orders", "billing")
	f.Fuzz(func(t *testing.T, name, topic, group string) {
		level, ok := Names{}.level(topic, group, name)
		if ok && (level <= 0 || Names{}.delay(topic, group, level) != name) {
			t.Errorf("%q was read as level %s of %q and %q, whose name is %q", name, delayqueue.LevelName(level), topic, group, Names{}.delay(topic, group, level))
		}
	})
}

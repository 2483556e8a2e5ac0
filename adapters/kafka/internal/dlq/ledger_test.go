package dlq

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestLedgerKnowsRemovedRecords(t *testing.T) {
	t.Parallel()
	l := newLedger()
	at := time.UnixMilli(5000)
	for key, value := range map[string]string{
		"1/10": `{"through":19,"first":4000,"last":6000,"outcome":"replayed"}`,
		"1/20": `{"through":20,"first":4000,"last":6000,"outcome":"purged"}`,
		// Garbage settles nothing.
		"1/40": `{"through":49,"first":4000,"last":6000,"outcome":"skipped"}`,
		"1/50": `{"through":40,"first":4000,"last":6000,"outcome":"replayed"}`,
		"1/60": `{`,
		"x/70": `{"through":79,"first":4000,"last":6000,"outcome":"replayed"`,
		"odd":  `{}`,
	} {
		l.apply([]byte(key), []byte(value))
	}
	if l.unreadable != 5 {
		t.Errorf("%d records are unreadable, want 5", l.unreadable)
	}
	for offset := range int64(100) {
		if got, want := l.isRemoved(1, offset, at), offset >= 10 && offset <= 20; got != want {
			t.Errorf("%d is settled: %v", offset, got)
		}
	}
	if got := l.prefix(1, 10); got != 21 {
		t.Errorf("everything is settled up to %d, want 21", got)
	}
	if got := l.prefix(1, 9); got != 9 {
		t.Errorf("from 9 on everything is settled up to %d, want none", got)
	}
	if l.isRemoved(1, 12, time.UnixMilli(6001)) || l.isRemoved(1, 13, at) {
		t.Error("a span settles a later record, which belongs to a new topic of the same name")
	}
	l.apply([]byte("1/20"), nil)
	if l.isRemoved(1, 20, at) {
		t.Error("a tombstone is ignored")
	}
}

// The state topic still has spans of an earlier topic of the same name. They must not hide those of the new topic, or
// removed records would be replayed again.
func TestStaleSpansHideNoOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		staleKey, stale, key, value string
		removed                     []int64
	}{
		"a long one":  {"1/0", `{"through":9,"first":1000,"last":2000,"outcome":"replayed"}`, "1/5", `{"through":5,"first":5000,"last":5000,"outcome":"replayed"}`, []int64{5}},
		"a short one": {"1/5", `{"through":5,"first":1000,"last":2000,"outcome":"replayed"}`, "1/1", `{"through":9,"first":5000,"last":5000,"outcome":"replayed"}`, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"a later one": {"1/0", `{"through":9,"first":6000,"last":7000,"outcome":"replayed"}`, "1/5", `{"through":5,"first":5000,"last":5000,"outcome":"replayed"}`, []int64{5}},
	} {
		var removed []int64
		for offset := range int64(10) { // a reader may begin at any offset
			l := newLedger()
			l.apply([]byte(c.staleKey), []byte(c.stale))
			l.apply([]byte(c.key), []byte(c.value))
			if l.isRemoved(1, offset, time.UnixMilli(5000)) {
				removed = append(removed, offset)
			}
		}
		if !slices.Equal(removed, c.removed) {
			t.Errorf("%s: removed are %d, want %d", name, removed, c.removed)
		}
	}
}

// FuzzLedger applies two records of a DLQ's state topic, to which other programs may write. Garbage settles only the
// records that it names, and the spans stay in order.
func FuzzLedger(f *testing.F) {
	f.Add("0/5", []byte(`{"through":9,"first":0,"last":9000000000000,"outcome":"replayed","task":"1"}`), "0/2", []byte(`{"through":4,"last":1,"outcome":"purged"}`))
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
	})
}

package kafka

import (
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
		"1/40": `{"through":49,"first":4000,"last":6000,"outcome":"quarantined"}`,
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

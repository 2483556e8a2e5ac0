package kafka

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

func (l *ledger) claimed(t *testing.T, c lease) string {
	t.Helper()
	value, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	l.apply([]byte(claimKey), value)
	return l.lease.Token
}

// Two that found the DLQ free wrote their claims: the first has it, whatever the
// other writes, until its own lease is over and somebody begins the next epoch.
func TestTheFirstClaimOfAnEpochCounts(t *testing.T) {
	t.Parallel()
	l := newLedger()
	for i, step := range []struct {
		claim lease
		has   string
	}{
		{lease{Epoch: 1, Token: "a"}, "a"},
		{lease{Epoch: 1, Token: "b"}, "a"},
		{lease{Epoch: 1, Token: "a", Who: "renewed"}, "a"},
		{lease{Epoch: 2, Token: "c"}, "c"},
		{lease{Epoch: 1, Token: "a"}, "c"}, // it was stopped, and wakes up
		{lease{Epoch: 2, Token: "b"}, "c"},
	} {
		if got := l.claimed(t, step.claim); got != step.has {
			t.Errorf("after step %d %s has the DLQ, want %s", i, got, step.has)
		}
	}
}

func TestALedgerKnowsWhatIsSettled(t *testing.T) {
	t.Parallel()
	l := newLedger()
	at := time.UnixMilli(5000)
	for key, value := range map[string]string{
		"1/10":      `{"through":19,"first":4000,"last":6000,"outcome":"replayed"}`,
		"1/20":      `{"through":20,"first":4000,"last":6000,"outcome":"purged"}`,
		"1/30/mark": `{"through":31,"first":4000,"last":6000,"outcome":"quarantined"}`,
		// Garbage settles nothing.
		"1/40":      `{"through":49,"first":4000,"last":6000,"outcome":"quarantined"}`,
		"1/50":      `{"through":40,"first":4000,"last":6000,"outcome":"replayed"}`,
		"1/60":      `{`,
		"x/70":      `{"through":79,"first":4000,"last":6000,"outcome":"replayed"}`,
		"1/80/mark": `{"through":89,"first":4000,"last":6000,"outcome":"purged"}`,
	} {
		l.apply([]byte(key), []byte(value))
	}
	if l.strange != 5 {
		t.Errorf("%d records are strange, want 5", l.strange)
	}
	for offset := range int64(100) {
		if got, want := l.settled(1, offset, at), offset >= 10 && offset <= 20; got != want {
			t.Errorf("%d is settled: %v", offset, got)
		}
		if got, want := l.mark(1, offset, at) == deadletter.Quarantined, offset == 30 || offset == 31; got != want {
			t.Errorf("%d is marked: %v", offset, got)
		}
	}
	if got := l.prefix(1, 10); got != 21 {
		t.Errorf("all is settled up to %d, want 21", got)
	}
	if got := l.prefix(1, 9); got != 9 {
		t.Errorf("from 9 on all is settled up to %d, want none", got)
	}
	if l.settled(1, 12, time.UnixMilli(6001)) || l.settled(1, 13, at) {
		t.Error("a record that is later than the span is of another life of the topic, in which it settles nothing")
	}
	l.apply([]byte("1/20"), nil)
	if l.settled(1, 20, at) {
		t.Error("a tombstone is not obeyed")
	}
}

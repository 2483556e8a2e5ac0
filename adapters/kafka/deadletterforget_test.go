package kafka_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
)

// Marks of records that the broker has deleted are forgotten, even if there is nothing left to delete.
func TestOnKafkaMarksOfDeletedRecordsAreForgotten(t *testing.T) {
	t.Parallel()
	m := newFailingGroup(t, onKafka(t))
	m.deadLetter(t, 12)
	q := m.queue(t, kafka.DeadLetterConfig{})
	task, err := deadletter.Quarantine(t.Context(), q, deadletter.QuarantineOptions{Who: "ann", Why: "test", Filter: deadletter.Filter{Before: time.Now().Add(time.Hour)}})
	if err != nil || task.Counts.Quarantined != 12 {
		t.Fatalf("%+v: %v", task, err)
	}
	dlq := m.ours("dlq")
	marks := func() (n int) {
		latest := make(map[string]bool)
		for _, r := range read(t, m.addrs, dlq+".state", int(count(t, m.addrs, dlq+".state"))) {
			latest[string(r.Key)] = r.Value != nil
		}
		for key, isSet := range latest {
			if isSet && strings.HasPrefix(key, "mark/") {
				n++
			}
		}
		return n
	}
	if marks() == 0 {
		t.Fatal("nothing is marked")
	}
	adm := kadm.NewClient(independent(t, m.addrs))
	ends, err := adm.ListEndOffsets(t.Context(), dlq)
	if err == nil {
		var dropped kadm.DeleteRecordsResponses
		dropped, err = adm.DeleteRecords(t.Context(), ends.Offsets())
		err = errors.Join(err, dropped.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	if task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test"}); err != nil || task.Counts.Scanned != 0 {
		t.Fatalf("%+v: %v", task, err)
	}
	if n := marks(); n != 0 {
		t.Errorf("%d marks are left", n)
	}
}

package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/mq"
)

// The reported retention is that of the topic now, and the oldest record is the oldest unsettled one.
func TestOnKafkaRetentionAndAgeOfADLQAreReported(t *testing.T) {
	t.Parallel()
	m := newFailingGroup(t, onKafka(t))
	began := time.Now().Add(-time.Second)
	ids := m.deadLetter(t, 20)
	q := m.queue(t, mq.DeadLetterConfig{})
	oldest := func() time.Time {
		t.Helper()
		at, ok, err := q.Oldest(t.Context())
		if err != nil || !ok || at.Before(began) || at.After(time.Now().Add(time.Second)) {
			t.Fatalf("the oldest is of %s (%v): %v", at, ok, err)
		}
		return at
	}
	first := oldest()
	purge := func(p deadletter.PurgeOptions) {
		t.Helper()
		p.Who, p.Why = "ann", "test"
		if _, err := deadletter.Purge(t.Context(), q, p); err != nil {
			t.Fatal(err)
		}
	}
	// Gaps in the log, and whole partitions of gaps.
	purge(deadletter.PurgeOptions{Filter: deadletter.Filter{IDs: ids[:19]}})
	if last := oldest(); last.Before(first) {
		t.Errorf("the last is of %s, the first of %s", last, first)
	}
	purge(deadletter.PurgeOptions{Everything: true})
	if at, ok, err := q.Oldest(t.Context()); ok || err != nil {
		t.Errorf("nothing is left, and the oldest is of %s: %v", at, err)
	}

	keeps, err := q.Retention(t.Context())
	if err != nil || keeps != 0 {
		t.Errorf("our DLQ keeps its records for %s: %v", keeps, err)
	}
	if drops, err := q.DropLimit(t.Context()); err != nil || drops != "" {
		t.Errorf("our DLQ has the bound %q: %v", drops, err)
	}
	var settings []kadm.AlterConfig
	for name, value := range map[string]string{"retention.ms": "7200000", "retention.bytes": "123456789", "cleanup.policy": "compact,delete"} {
		settings = append(settings, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	if _, err := kadm.NewClient(independent(t, m.addrs)).AlterTopicConfigs(t.Context(), settings, q.Info().DLQ); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the topic has its new settings", func() bool {
		keeps, err = q.Retention(t.Context())
		return err == nil && keeps == 2*time.Hour
	})
	drops, err := q.DropLimit(t.Context())
	if err != nil || !strings.Contains(drops, "retention.bytes=123456789") || !strings.Contains(drops, "compact") {
		t.Errorf("it has the bound %q: %v", drops, err)
	}
}

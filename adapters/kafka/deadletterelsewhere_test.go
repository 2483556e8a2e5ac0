package kafka_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redeliver/redeliver/adapters/kafka"
)

// A group that has committed nothing used to have dealt with nothing, so that all was
// replayed, and one whose offsets are those of an older topic hid all that lies there.
func TestWhoReadsADLQHasCommittedWhatCanBe(t *testing.T) {
	addrs := fake(t, "orders", "orders-retry", "empty-retry").ListenAddrs()
	c, _ := open(t, kafka.Config{Brokers: addrs, Group: "billing"})
	for range 2 {
		rec := order("orders-retry", "a")
		rec.Partition = 1
		put(t, addrs, rec)
	}
	adm := kadm.NewClient(independent(t, addrs))
	commit := func(group string, partition int32, at int64) {
		t.Helper()
		var offsets kadm.Offsets
		offsets.AddOffset("orders-retry", partition, at, -1)
		if err := adm.CommitAllOffsets(t.Context(), group, offsets); err != nil {
			t.Fatal(err)
		}
	}
	commit("one", 1, 1)
	commit("all", 1, 2)
	commit("elsewhere", 0, 0)
	commit("older", 1, 3)
	for name, at := range map[string]struct {
		dlq, readBy string
		lie         int64
		refused     string
	}{
		"nobody":                      {"orders-retry", "", 2, ""},
		"one":                         {"orders-retry", "one", 1, ""},
		"all":                         {"orders-retry", "all", 0, ""},
		"nothing of this partition":   {"orders-retry", "elsewhere", 2, ""},
		"nothing":                     {"orders-retry", "biling", 0, "group biling has committed nothing in orders-retry"},
		"nothing, where nothing lies": {"empty-retry", "biling", 0, ""},
		"more than lies there":        {"orders-retry", "older", 0, "group older has committed 3 in orders-retry/1, which ends at 2"},
	} {
		q, err := c.DeadLetters(t.Context(), kafka.DeadLetterConfig{Topic: "orders", DLQ: at.dlq, ReadBy: at.readBy})
		if at.refused != "" {
			if err == nil || !strings.Contains(err.Error(), at.refused) {
				t.Errorf("%s: %v, want it refused: %s", name, err, at.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if n, _, err := q.Count(t.Context()); err != nil || n != at.lie || q.Info().ReadBy != at.readBy {
			t.Errorf("%s: %d lie there, read by %q: %v", name, n, q.Info().ReadBy, err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

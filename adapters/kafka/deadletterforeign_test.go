package kafka_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/mq"
)

// With a group that has committed nothing, everything would be replayed. With offsets of an older topic, all records
// would be hidden.
func TestReadByNeedsPlausibleOffsets(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders", "orders-retry", "empty-retry").ListenAddrs()
	c, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing"})
	for range 2 {
		rec := order("orders-retry", "a")
		rec.Partition = 1
		put(t, addrs, rec)
	}
	adm := kadm.NewClient(independent(t, addrs))
	commit := func(group string, partition int32, at int64, topic ...string) {
		t.Helper()
		var offsets kadm.Offsets
		offsets.AddOffset(append(topic, "orders-retry")[0], partition, at, -1)
		if err := adm.CommitAllOffsets(t.Context(), group, offsets); err != nil {
			t.Fatal(err)
		}
	}
	commit("one", 1, 1)
	commit("all", 1, 2)
	commit("elsewhere", 0, 0)
	commit("older", 1, 3)
	commit("begins", 0, 1, "empty-retry")
	for name, at := range map[string]struct {
		dlq, readBy string
		records     int64
		refused     string
	}{
		"nobody":                  {"orders-retry", "", 2, ""},
		"one":                     {"orders-retry", "one", 1, ""},
		"all":                     {"orders-retry", "all", 0, ""},
		"only another partition":  {"orders-retry", "elsewhere", 2, ""},
		"only another topic":      {"orders-retry", "begins", 2, ""},
		"nothing":                 {"orders-retry", "biling", 0, "group biling has committed nothing in orders-retry"},
		"nothing in an empty DLQ": {"empty-retry", "biling", 0, ""},
		"more than the DLQ has":   {"orders-retry", "older", 0, "group older has committed 3 in orders-retry/1, which ends at 2"},
	} {
		q, err := c.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: "orders", DLQ: at.dlq, ReadBy: at.readBy})
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
		if n, _, err := q.Count(t.Context()); err != nil || n != at.records || q.Info().ReadBy != at.readBy {
			t.Errorf("%s: the DLQ has %d, read by %q: %v", name, n, q.Info().ReadBy, err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

// All groups read the origin in the order of its keys. If the origin has the partition in the header, the message
// returns to that partition, whichever its key would choose. Otherwise the key chooses.
func TestAReplayToTheOriginKeepsTheOrderOfKeys(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders", "orders-dlt").ListenAddrs()
	c, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing"})
	const keys = 8
	var recs []*kgo.Record
	for i := range keys {
		msg := message.NewMessage(fmt.Sprint(i), []byte("published"))
		kafka.SetKey(msg, fmt.Append(nil, i))
		if err := c.Publisher().Publish("orders", msg); err != nil {
			t.Fatal(err)
		}
		for _, partition := range []uint32{0, 1, 2, 3, 4, 5, 6, 7, math.MaxInt32} {
			recs = append(recs, &kgo.Record{Topic: "orders-dlt", Key: []byte(fmt.Sprint(i)), Value: fmt.Append(nil, partition), Headers: []kgo.RecordHeader{
				{Key: "kafka_dlt-original-topic", Value: []byte("orders")},
				{Key: "kafka_dlt-original-partition", Value: binary.BigEndian.AppendUint32(nil, partition)},
				{Key: "kafka_dlt-original-offset", Value: make([]byte, 8)},
			}})
		}
	}
	put(t, addrs, recs...)
	q, err := c.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: "orders", DLQ: "orders-dlt", ReplayTo: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	replayAll(t, q, ann)
	all := read(t, addrs, "orders", keys+len(recs))
	partitionOf := make(map[string]int32) // by key
	for _, rec := range all {
		if string(rec.Value) == "published" {
			partitionOf[string(rec.Key)] = rec.Partition
		}
	}
	for _, rec := range all {
		want := partitionOf[string(rec.Key)]
		if partition, err := strconv.Atoi(string(rec.Value)); err == nil && partition < 4 {
			want = int32(partition)
		}
		if rec.Partition != want {
			t.Errorf("key %s, which was on %s, is on partition %d, want %d", rec.Key, rec.Value, rec.Partition, want)
		}
	}
}

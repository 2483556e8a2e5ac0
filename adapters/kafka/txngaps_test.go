package kafka_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/adapters/kafka"
)

// Offsets without records, more than are noted beside an offset, kept the record behind
// them from being read for ever.
func TestTransactionsReadOnBehindAGapOfOffsets(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	before, behind := order("orders", "before"), order("orders", "behind")
	put(t, addrs, before)
	aborted := independent(t, addrs, kgo.TransactionalID("gap"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := aborted.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	recs := make([]*kgo.Record, 9000)
	for i := range recs {
		recs[i] = &kgo.Record{Topic: "orders", Value: []byte("never")}
	}
	if err := aborted.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := aborted.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	put(t, addrs, behind)
	c, ev := open(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1), Transactions: true})
	route(t, c, "orders", func(*message.Message) error { return errDeclined })
	ev.awaitEnds(t, "before", "behind")
	onceEach(t, addrs, []string{"orders.billing.dlq"}, 2)
}

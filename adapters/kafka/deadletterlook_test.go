package kafka_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/mq"
)

// filledDLQ makes a DLQ of four partitions with records on each.
func filledDLQ(t *testing.T, p fixture, each int) (deadletter.Queue, *events) {
	t.Helper()
	c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group})
	if err := c.Subscriber().SubscribeInitialize(p.topic); err != nil {
		t.Fatal(err)
	}
	var recs []*kgo.Record
	for i := range 4 * each {
		rec := order(p.ours("dlq"), fmt.Sprint(i))
		rec.Partition = int32(i % 4)
		recs = append(recs, rec)
	}
	put(t, p.addrs, recs...)
	q, err := c.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: p.topic})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q, ev
}

func TestAScanOfTheTailReadsOnlyTheEndOfEachPartition(t *testing.T) {
	t.Parallel()
	const each = driver.TailSize + 100
	q, _ := filledDLQ(t, fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}, each)
	read, first := 0, make(map[string]string)
	for m, err := range deadletter.BrowseTail(t.Context(), q, deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		read++
		partition, offset, _ := strings.Cut(string(m.Position), "/")
		if first[partition] == "" {
			first[partition] = offset
		}
	}
	if read != 4*driver.TailSize || len(first) != 4 || first["0"] != "100" {
		t.Errorf("read %d messages, the first of each partition: %v", read, first)
	}
}

// A claim asks only for the three topics that it needs, because a cluster may have many.
func TestAClaimListsTopicsOnce(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	q, _ := filledDLQ(t, fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}, 1)
	claim := func() {
		c, err := q.Claim(t.Context(), deadletter.Holder{Who: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	claim() // it creates the state topic
	var lists, looks atomic.Int64
	cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		switch m := req.(*kmsg.MetadataRequest); {
		case m.Topics == nil:
			lists.Add(1)
		case len(m.Topics) == 3:
			looks.Add(1)
		}
		return nil, nil, false
	})
	claim()
	if lists.Load() != 0 || looks.Load() != 1 {
		t.Errorf("all topics were listed %d times, and its own %d times, want once", lists.Load(), looks.Load())
	}
}

// If a refresh dropped the known partitions for a moment, a concurrent Count would miss some of them.
func TestCountIsCompleteDuringAConcurrentRefresh(t *testing.T) {
	t.Parallel()
	const each, looks = 5, 60
	q, _ := filledDLQ(t, fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}, each)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range looks {
			if err := q.Request(t.Context(), "task", deadletter.RequestNone); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for {
		n, _, err := q.Count(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n != 4*each {
			t.Fatalf("%d are in the DLQ, want %d", n, 4*each)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// Records of the state topic that redeliver cannot have written are skipped, and each is reported once.
func TestGarbageInTheStateOfADLQIsReportedOnce(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	q, ev := filledDLQ(t, p, 1)
	if err := q.Request(t.Context(), "task", deadletter.RequestNone); err != nil { // it creates the state topic
		t.Fatal(err)
	}
	rec := order(p.ours("dlq.state"), "no such thing")
	reported := func(detail string) func(redeliver.Event) bool {
		return func(e redeliver.Event) bool {
			c, ok := e.(redeliver.SubscriptionChanged)
			return ok && c.Change == redeliver.ChangeDLQStateUnknown && c.Origin == p.topic && c.Group == p.group && c.Detail == detail
		}
	}
	const rest = " records of orders.billing.dlq.state are skipped; check which other programs write to it"
	for i, n := range []int{1, 2} {
		for range n {
			put(t, p.addrs, rec)
		}
		for range 2 {
			if _, err := q.Tasks(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ev.await(t, 1, reported(fmt.Sprint(n)+rest))
		if all := len(all[redeliver.SubscriptionChanged](ev)); all != i+1 {
			t.Errorf("reported %d times, want %d", all, i+1)
		}
	}
}

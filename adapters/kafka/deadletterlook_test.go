package kafka_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
)

// grave is a DLQ of four partitions, with so many records on each.
func grave(t *testing.T, p place, each int) (deadletter.Queue, *events) {
	t.Helper()
	c, ev := open(t, kafka.Config{Brokers: p.addrs, Group: p.group})
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
	q, err := c.DeadLetters(t.Context(), kafka.DeadLetterConfig{Topic: p.topic})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q, ev
}

// The list of the cluster's topics, which may be long, was asked for three times. Its own are three.
func TestAClaimAsksOnceWhatThereIs(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	q, _ := grave(t, place{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}, 1)
	claim := func() {
		c, err := q.Claim(t.Context(), deadletter.Holder{Who: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	claim() // it makes the companion
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

// What is known of the DLQ's partitions was thrown away while it was asked anew: who
// counted at that moment missed some of them.
func TestADLQIsCountedWhileSomebodyLooksAtItAnew(t *testing.T) {
	t.Parallel()
	const each, looks = 5, 60
	q, _ := grave(t, place{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}, each)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range looks {
			if err := q.Request(t.Context(), "task", deadletter.NoRequest); err != nil {
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
			t.Fatalf("%d lie in the DLQ, want %d", n, 4*each)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// Records of the companion that nobody here can have written are passed over, and each
// is told of once.
func TestGarbageInTheStateOfADLQIsToldOf(t *testing.T) {
	t.Parallel()
	p := place{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	q, ev := grave(t, p, 1)
	if err := q.Request(t.Context(), "task", deadletter.NoRequest); err != nil { // it makes the companion
		t.Fatal(err)
	}
	rec := order(p.ours("dlq.state"), "no such thing")
	told := func(detail string) func(redeliver.Event) bool {
		return func(e redeliver.Event) bool {
			c, ok := e.(redeliver.SubscriptionChanged)
			return ok && c.Change == redeliver.ChangeDLQStateGarbage && c.Origin == p.topic && c.Group == p.group && c.Detail == detail
		}
	}
	const rest = " records of orders.billing.dlq.state are passed over; see who else writes to it"
	for i, n := range []int{1, 2} {
		for range n {
			put(t, p.addrs, rec)
		}
		for range 2 {
			if _, err := q.Tasks(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ev.await(t, 1, told(fmt.Sprint(n)+rest))
		if all := len(all[redeliver.SubscriptionChanged](ev)); all != i+1 {
			t.Errorf("told %d times, want %d", all, i+1)
		}
	}
}

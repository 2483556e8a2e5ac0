package kafka_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

func TestNewestWithAnOffsetOutOfRangeReadsOn(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	recs, _ := orders("orders", 8)
	write(t, addrs, recs...)
	adm := kadm.NewClient(independent(t, addrs))
	stale, cut := make(kadm.Offsets), make(kadm.Offsets)
	ends, err := adm.ListEndOffsets(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) {
		stale.AddOffset(o.Topic, o.Partition, 0, -1)
		cut.AddOffset(o.Topic, o.Partition, o.Offset, -1)
	})
	if err := adm.CommitAllOffsets(t.Context(), "billing", stale); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.DeleteRecords(t.Context(), cut); err != nil { // its retention is over
		t.Fatal(err)
	}
	cl, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1), SkipExisting: true})
	route(t, cl, "orders", failFirst(0))
	ev.awaitJoined(t, 1)
	fresh, ids := orders("orders", 20)
	write(t, addrs, fresh...)
	ev.awaitEnds(t, ids...)
}

// The group's offset is behind the end of a partition that was truncated or mirrored. The partition is read from its
// start.
func TestAnOffsetBehindTheEndIsReported(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	recs, ids := orders("orders", 8)
	write(t, addrs, recs...)
	ahead := make(kadm.Offsets)
	for p := range int32(4) {
		ahead.AddOffset("orders", p, 1000, -1)
	}
	if err := kadm.NewClient(independent(t, addrs)).CommitAllOffsets(t.Context(), "billing", ahead); err != nil {
		t.Fatal(err)
	}
	cl, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
	route(t, cl, "orders", failFirst(0))
	ev.awaitEnds(t, ids...)
	ev.await(t, 1, func(e redeliver.Event) bool {
		c, ok := e.(redeliver.SubscriptionChanged)
		return ok && c.Change == redeliver.ChangeReadFromStart && strings.Contains(c.Detail, "1000")
	})
}

// A member with another policy puts the rest of a wait on a level of its own ladder. It must write the name of its own
// policy: by the ladder of the first policy the due time would be wrong, and the message would run early.
func TestAHopIsJudgedByItsWritersLadder(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	// The reading member has no level between 200 ms and 1 s, and the writer has.
	cfg := kafka.Config{Brokers: addrs, Group: "billing", RetryPartitions: 1,
		Policy: redeliver.Policy{Backoff: redeliver.Fixed(time.Second), Levels: []time.Duration{200 * time.Millisecond, time.Second}}}
	cl, ev := openClient(t, cfg)
	if err := cl.Subscriber().SubscribeInitialize("orders"); err != nil {
		t.Fatal(err)
	}
	entered := make(chan time.Time, 1)
	route(t, cl, "orders", func(*message.Message) error {
		entered <- time.Now()
		return nil
	})
	ev.awaitJoined(t, 1)
	// On a slow machine the hop is late, and the rest is too short for a level. Then try another one.
	begin := time.Now()
	for i := 0; i == 0 || count(t, addrs, "orders.billing.retry.200ms") == 0; i++ {
		if i > 0 && time.Since(begin) > waitTimeout {
			t.Fatalf("%d messages ran, and none hopped", i)
		}
		due := time.Now().Add(1900 * time.Millisecond).Truncate(time.Millisecond).UTC()
		id := fmt.Sprint("order-", i)
		put(t, addrs, ours("orders.billing.retry.1s", id, redeliver.State{
			ID: id, Group: "billing", Origin: "orders", Attempts: 1, Due: due, Policy: "another",
			Source: redeliver.Source{Known: true, Offset: int64(i)},
		}))
		select {
		case at := <-entered:
			if at.Before(due) {
				t.Errorf("early by %s", due.Sub(at))
			}
		case <-time.After(waitTimeout):
			t.Fatal("it never ran")
		}
	}
	ev.noFindings(t)
	hops := read(t, addrs, "orders.billing.retry.200ms", 1)
	if _, ours := splitBlock(hops[0].Headers); ours[redeliver.HeaderPolicy] == "" || ours[redeliver.HeaderPolicy] == "another" {
		t.Errorf("the hop has the policy %q, want the one that chose its level", ours[redeliver.HeaderPolicy])
	}
}

func TestARecordRefusedByItsLevelGoesToTheDLQ(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	cl, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
	if err := cl.Subscriber().SubscribeInitialize("orders"); err != nil {
		t.Fatal(err)
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders.billing.retry.100ms", Err: kerr.InvalidRecord, Count: -1},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders.billing.retry", Err: kerr.InvalidRecord, Count: -1})
	route(t, cl, "orders", failFirst(0))
	put(t, addrs, order("orders", "a"))
	dead, ok := ev.await(t, 1, is[redeliver.DeadLettered])[0].(redeliver.DeadLettered)
	if !ok || dead.State.Reason != redeliver.ReasonUnschedulable || dead.State.Attempts != 1 || dead.Where != "orders.billing.dlq" {
		t.Errorf("dead-lettered as %+v", dead)
	}
	for _, c := range all[redeliver.SubscriptionChanged](ev) {
		if c.Change == redeliver.ChangeIntakePaused {
			t.Error("one record's refusal paused the intake")
		}
	}
}

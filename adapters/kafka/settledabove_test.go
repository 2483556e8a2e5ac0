package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
)

// retries makes n records on a level, due now, after one attempt.
func retries(p fixture, n int) (recs []*kgo.Record, ids []string) {
	for i := range n {
		id := fmt.Sprintf("retry-%04d", i)
		rec := ours(p.ours("retry.100ms"), id, redeliver.State{
			ID: id, Group: p.group, Origin: p.topic, Attempts: 1, Due: time.Now(), FirstFailed: time.Now(), LastFailed: time.Now(),
			Source: redeliver.Source{Known: true, Offset: int64(i), Timestamp: time.Now()},
		})
		recs, ids = append(recs, rec), append(ids, id)
	}
	return recs, ids
}

func TestRecordsSettledAboveASlowRetryDoNotRunAgain(t *testing.T) {
	t.Parallel()
	const inFlight, n = 10, 1000
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), MaxInFlight: inFlight, DrainTimeout: 200 * time.Millisecond}
	first, ev := openClient(t, cfg)
	if err := first.Subscriber().SubscribeInitialize(p.topic); err != nil {
		t.Fatal(err)
	}
	recs, ids := retries(p, n)
	put(t, p.addrs, recs...)
	route(t, first, p.topic, func(msg *message.Message) error {
		if msg.UUID == ids[0] {
			<-msg.Context().Done()
			return msg.Context().Err()
		}
		return nil
	})
	settled := func() int { return len(all[redeliver.Committed](ev)) }
	eventually(t, "all others are settled", func() bool { return settled() == n-1 })
	if err := first.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	// They do not wait either, although the committed offset is before them.
	w := p.waiting(t)
	var waiting []string
	for m, err := range w.Browse(t.Context(), deadletter.WaitingFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, m.ID)
	}
	if depth := waitingCount(t, w); depth != 1 || !slices.Equal(waiting, ids[:1]) {
		t.Errorf("%d messages wait, and %d are listed, want only %s", depth, len(waiting), ids[0])
	}
	second, after := openClient(t, cfg)
	route(t, second, p.topic, func(*message.Message) error { return nil })
	after.awaitEnds(t, ids[0])
	if err := second.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if ran := after.attempts(); len(ran) != 1 {
		t.Errorf("%d retries ran after an ordinary close, want the one that had not ended", len(ran))
	}
}

// A delayed publish that may not be written to the origin goes to the DLQ, unschedulable.
func TestADelayedPublishWithoutWriteOnTheOriginStopsNothing(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1)})
	msg := message.NewMessage("later", []byte("later"))
	delay.Message(msg, delay.For(100*time.Millisecond))
	if err := c.Publisher().Publish(p.topic, msg); err != nil {
		t.Fatal(err)
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: p.topic, Err: kerr.TopicAuthorizationFailed, Count: -1})
	route(t, c, p.topic, func(*message.Message) error { return nil })
	recs, ids := retries(p, 5)
	put(t, p.addrs, recs...)
	ev.awaitEnds(t, ids...)
	dead, _ := ev.await(t, 1, is[redeliver.DeadLettered])[0].(redeliver.DeadLettered)
	if dead.State.ID != "later" || dead.State.Reason != redeliver.ReasonUnschedulable || !strings.Contains(dead.State.Error, "grant Write") {
		t.Errorf("dead-lettered %+v", dead.State)
	}
}

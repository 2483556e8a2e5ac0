package kafka_test

import (
	"context"
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

// Without the right to delete records, delay topics keep all retries. When the group's offsets are lost, all of them
// run again.
func TestLevelsReadFromTheirStartAreReported(t *testing.T) {
	t.Parallel()
	const n = 50
	cluster := fake(t, "orders")
	p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DeleteRecords}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1)}
	first, ev := openClient(t, cfg)
	kafka.SweepEvery(first, 50*time.Millisecond)
	route(t, first, p.topic, failFirst(0))
	recs, ids := orders(p.topic, n)
	put(t, p.addrs, recs...)
	ev.awaitEnds(t, ids...)
	ev.await(t, 1, isChange(redeliver.ChangeRecordsNotDeleted))
	if err := first.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := kadm.NewClient(independent(t, p.addrs)).DeleteGroup(t.Context(), p.group); err != nil {
		t.Fatal(err)
	}
	cfg.SkipExisting = true // the origin repeats nothing
	second, after := openClient(t, cfg)
	route(t, second, p.topic, func(*message.Message) error { return nil })
	after.awaitJoined(t, 1)
	after.await(t, 1, func(e redeliver.Event) bool {
		c, ok := e.(redeliver.SubscriptionChanged)
		return ok && c.Change == redeliver.ChangeReadFromStart && strings.Contains(c.Detail, p.ours("retry.100ms"))
	})
}

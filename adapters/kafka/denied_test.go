package kafka_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/mq"
)

// newDenied returns a service of which operations are denied.
func newDenied(t *testing.T) *kafkatest.Denied {
	t.Helper()
	d := kafkatest.NewDenied(t, "orders", "billing")
	d.Begin = func(t *testing.T, sink redeliver.Sink) (func(), error) {
		t.Helper()
		sc := withLongTimeouts(nil)
		sc.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
		sc.Consumer.Retry.Backoff, sc.Consumer.Group.Rebalance.Retry.Backoff = 200*time.Millisecond, 50*time.Millisecond
		sc.Metadata.Retry.Backoff = 50 * time.Millisecond
		c, err := kafka.Open(t.Context(), kafka.Config{
			Brokers: d.Cluster.ListenAddrs(), Group: d.Group, Sink: sink, Sarama: sc,
			Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(180 * time.Millisecond), Outage: redeliver.Outage{Off: true}},
		})
		if err != nil {
			return nil, err
		}
		kafka.SweepEvery(c, 300*time.Millisecond)
		return d.Serve(c.Subscriber(), middleware.Retry(), func() { _ = c.Close(context.Background()) })
	}
	d.Rebalance = func() {
		d.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: d.Group, Err: kerr.RebalanceInProgress, Count: 1})
	}
	d.Wished = func(op kafkatest.Operation) string {
		switch {
		case op.Name == d.Ours("control"):
			return "commands are not read; all else continues"
		case op.Key == kmsg.DeleteRecords:
			return "settled records stay"
		case op.Key == kmsg.CreateTopics && isRung(op):
			return "longer waits hop over the levels that are there"
		}
		return ""
	}
	return d
}

func isRung(op kafkatest.Operation) bool {
	level, ok := kafka.LevelOf("orders", "billing", op.Name)
	return ok && level > time.Second
}

// recordedRun returns a service and the operations of its run. They need the rights of the plan, and no others.
func recordedRun(t *testing.T) (*kafkatest.Denied, []kafkatest.Operation) {
	t.Helper()
	d := newDenied(t)
	fixture{topic: d.Topic, group: d.Group, addrs: d.Cluster.ListenAddrs()}.writeControl(t, "seen", "a member reads the control topic") // creates it
	used := d.Record(t, func(*kafkatest.Operations) {
		d.Put(t, "long")
		eventually(t, "the rungs exist", func() bool { return d.Cluster.TopicInfo(d.Ours("retry.1h")) != nil })
	})
	c, _ := openClient(t, kafka.Config{Brokers: d.Cluster.ListenAddrs(), Group: d.Group, Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(180 * time.Millisecond)}})
	plan, err := c.Plan(t.Context(), d.Topic)
	if err != nil {
		t.Fatal(err)
	}
	wantPlanned(t, used, plan)
	return d, used
}

// wantPlanned checks that the rights of a plan are those that the operations need.
func wantPlanned(t *testing.T, used []kafkatest.Operation, plan *mq.Plan) {
	t.Helper()
	planned := make(map[string]bool) // whether it was needed
	for _, right := range plan.Rights {
		for _, op := range right.Operations {
			planned[op+" on "+right.Resource+" "+right.Name] = false
		}
	}
	for _, op := range used {
		place := " on " + op.Kind + " " + op.Name
		needed := op.Need()
		_, known := planned[needed]
		switch {
		case known:
			planned[needed] = true
		case op.Right() == "Describe" && slices.ContainsFunc([]string{"Read", "Write", "Delete"}, func(right string) bool {
			_, known := planned[right+place]
			return known
		}): // they include it
		case op.Key == kmsg.CreateTopics && slices.ContainsFunc(plan.Places, func(t mq.Place) bool { return t.Name == op.Name }):
			// The rights are for topics that exist, and the plan says which are created.
		case op.Key == kmsg.InitProducerID: // Write on one topic is enough
		default:
			t.Errorf("%s needs %s, which the plan does not name", op, needed)
		}
	}
	for right, needed := range planned {
		if !needed && !strings.Contains(right, "retry.1") && !(strings.HasPrefix(right, "Write") || strings.HasPrefix(right, "Delete")) {
			t.Errorf("the plan names %s, which was not needed", right)
		}
	}
}

// Some operations are denied alone while the service runs: a few of each kind. The proof denies all of them.
func TestOperationsDeniedAlone(t *testing.T) {
	t.Parallel()
	d, used := recordedRun(t)
	few := []kafkatest.Operation{
		{Key: kmsg.Fetch, Kind: "topic", Name: d.Topic}, {Key: kmsg.Metadata, Kind: "topic", Name: d.Ours("retry")},
		{Key: kmsg.OffsetCommit, Kind: "topic", Name: d.Topic}, {Key: kmsg.DescribeConfigs, Kind: "topic", Name: d.Ours("dlq")},
		{Key: kmsg.Produce, Kind: "topic", Name: d.Ours("retry.180ms")}, {Key: kmsg.JoinGroup, Kind: "group", Name: d.Group},
	}
	for _, op := range few {
		if !slices.Contains(used, op) {
			t.Errorf("a run does not use %s", op)
		}
	}
	d.During(t, few)
}

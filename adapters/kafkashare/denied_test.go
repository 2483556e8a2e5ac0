package kafkashare_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/middleware"
)

const retryGroup = "billing-retry"

// newDenied returns a service of which operations are denied.
func newDenied(t *testing.T) *kafkatest.Denied {
	t.Helper()
	d := kafkatest.NewDenied(t, "orders", "billing")
	setLock := kmsg.NewPtrIncrementalAlterConfigsRequest()
	setLock.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
		ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: d.Group,
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "share.record.lock.duration.ms", Value: new("30000")}},
	}}
	if _, err := setLock.RequestWith(t.Context(), connect(t, d)); err != nil { // the fake has no defaults
		t.Fatal(err)
	}
	d.Begin = func(t *testing.T, sink redeliver.Sink) (func(), error) {
		t.Helper()
		c, err := kafkashare.Open(t.Context(), kafkashare.Config{
			Brokers: d.Cluster.ListenAddrs(), Group: d.Group, Sink: sink, Clients: 1,
			Policy:  redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(180 * time.Millisecond), Outage: redeliver.Outage{Off: true}},
			Options: []kgo.Opt{kgo.HeartbeatInterval(200 * time.Millisecond), kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(time.Second)},
		})
		if err != nil {
			return nil, err
		}
		kafkashare.CheckEvery(c, 300*time.Millisecond)
		return d.Serve(c.Subscriber(), middleware.Retry(), func() { _ = c.Close(context.Background()) })
	}
	d.Rebalance = func() {
		d.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat, kmsg.ConsumerGroupHeartbeat}, Group: retryGroup, Err: kerr.RebalanceInProgress, Count: 1})
	}
	d.Wished = func(op kafkatest.Operation) string {
		switch {
		case op.Name == d.Ours("control"):
			return "commands are not read; all else continues"
		case op.Key == kmsg.DeleteRecords:
			return "settled records stay"
		}
		return ""
	}
	return d
}

func connect(t *testing.T, d *kafkatest.Denied) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(d.Cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func recordedRun(t *testing.T) (*kafkatest.Denied, []kafkatest.Operation) {
	t.Helper()
	d := newDenied(t)
	compact := "compact"
	kafkatest.MakeTopic(t, kadm.NewClient(connect(t, d)), 1, map[string]*string{"cleanup.policy": &compact}, d.Ours("control"))
	return d, d.Record(t, func(*kafkatest.Operations) {})
}

// Some operations are denied alone while the service runs: a few of each kind. The proof denies all of them.
func TestOperationsDeniedAlone(t *testing.T) {
	t.Parallel()
	d, used := recordedRun(t)
	few := []kafkatest.Operation{
		{Key: kmsg.ShareFetch, Kind: "topic", Name: d.Topic}, {Key: kmsg.Fetch, Kind: "topic", Name: d.Ours("retry")},
		{Key: kmsg.Metadata, Kind: "topic", Name: d.Ours("dlq")}, {Key: kmsg.OffsetCommit, Kind: "topic", Name: d.Ours("retry.180ms")},
		{Key: kmsg.Produce, Kind: "topic", Name: d.Ours("dlq")}, {Key: kmsg.JoinGroup, Kind: "group", Name: retryGroup},
	}
	for _, op := range few {
		if !slices.Contains(used, op) {
			t.Errorf("a run does not use %s", op)
		}
	}
	d.During(t, few)
}

package kafka_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/adapters/kafka"
)

// silence has a broker not answer requests of a kind until back is closed, and tells
// when the first has come.
func silence(cluster *kfake.Cluster, key kmsg.Key) (asked <-chan struct{}, back chan struct{}) {
	first := make(chan struct{}, 1)
	back = make(chan struct{})
	cluster.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		cluster.SleepControl(func() {
			select {
			case first <- struct{}{}:
			default:
			}
			<-back
		})
		return nil, nil, false
	})
	return first, back
}

// Close waited for whatever sarama was about, which takes no context: half a minute for
// a fetch that is not answered.
func TestABroadcastThatHasNoBrokerIsClosedInTime(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "prices")
	cfg := sarama.NewConfig()
	cfg.Net.DialTimeout = 10 * time.Second
	cfg.Net.ReadTimeout = 10 * time.Minute // it is not that which ends it
	b, err := kafka.OpenBroadcast(t.Context(), kafka.BroadcastConfig{Brokers: cluster.ListenAddrs(), Sink: newEvents(), Sarama: cfg, DrainTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.Subscribe(t.Context(), "prices")
	if err != nil {
		t.Fatal(err)
	}
	asked, back := silence(cluster, kmsg.Fetch) // of all partitions: behind it one that begins would wait
	<-asked
	begin := time.Now()
	err = b.Close()
	took := time.Since(begin)
	if took > 60*time.Second { // of the ten minutes
		t.Errorf("took %s", took)
	}
	if err == nil {
		t.Fatal("closed as if the broker had answered")
	}
	for _, part := range []string{"10.1s", "DrainTimeout", "DialTimeout", cluster.ListenAddrs()[0], "background"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	select {
	case _, open := <-out:
		if open {
			t.Error("a message comes from nowhere")
		}
	case <-time.After(patience):
		t.Error("the subscription has not ended")
	}
	close(back)
	if err := b.Close(); err != nil {
		t.Errorf("closing it again: %v", err)
	}
}

func TestABroadcastSubscribeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "prices")
	b, err := kafka.OpenBroadcast(t.Context(), kafka.BroadcastConfig{Brokers: cluster.ListenAddrs(), Sink: newEvents()})
	if err != nil {
		t.Fatal(err)
	}
	asked, back := silence(cluster, kmsg.ListOffsets)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	begin := time.Now()
	if _, err := b.Subscribe(ctx, "prices"); !errors.Is(err, context.Canceled) {
		t.Errorf("subscribed with %v", err)
	}
	if took := time.Since(begin); took > 20*time.Second { // sarama's 30
		t.Errorf("took %s", took)
	}
	close(back)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// What reads a topic was never closed: it left its metrics behind, among those of the
// service.
func TestABroadcastLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	p := place{addrs: fake(t, "prices").ListenAddrs(), topic: "prices"}
	cfg := sarama.NewConfig()
	b, err := kafka.OpenBroadcast(t.Context(), kafka.BroadcastConfig{Brokers: p.addrs, Sink: newEvents(), Sarama: cfg})
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.Subscribe(t.Context(), "prices")
	if err != nil {
		t.Fatal(err)
	}
	put(t, p.addrs, order("prices", "p-1"))
	select {
	case msg := <-out:
		msg.Ack()
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	const metric = "consumer-batch-size"
	if cfg.MetricRegistry.Get(metric) == nil {
		t.Fatalf("there is no %s while it reads", metric)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if m := cfg.MetricRegistry.Get(metric); m != nil {
		t.Errorf("%s is still there: %v", metric, m)
	}
}

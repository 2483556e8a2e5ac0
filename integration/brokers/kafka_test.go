//go:build prove

package brokers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/integration/brokers"
)

// The loss suite relies on this: a private broker can be killed at any time and comes back on the same address with all
// confirmed records.
func TestOwnKafkaKeepsARecordThroughSIGKILL(t *testing.T) {
	soakOnly(t)
	b := brokers.OwnKafka(t, brokers.KafkaOptions{Heap: "512m"})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	addrs := b.Addrs()

	createTopic(ctx, t, addrs, "records")
	produce(ctx, t, addrs, "records", "kept")
	if got := consumeOne(ctx, t, addrs, "records"); got != "kept" {
		t.Fatalf("before the kill the topic holds %q, want %q", got, "kept")
	}

	for _, end := range []struct {
		how   string
		again func() error
	}{
		{"kill and start", func() error {
			if err := b.Kill(); err != nil {
				return err
			}
			if answers(ctx, addrs) {
				t.Error("the broker still answers after SIGKILL")
			}
			return b.Start(ctx)
		}},
		{"restart", func() error { return b.Restart(ctx) }},
	} {
		began := time.Now()
		if err := end.again(); err != nil {
			t.Fatalf("%s: %v", end.how, err)
		}
		t.Logf("report: %s: answers again after %s", end.how, time.Since(began).Round(100*time.Millisecond))
		if got := b.Addrs(); strings.Join(got, ",") != strings.Join(addrs, ",") {
			t.Errorf("%s: the broker moved from %v to %v", end.how, addrs, got)
		}
		if got := consumeOne(ctx, t, addrs, "records"); got != "kept" {
			t.Errorf("%s: the topic holds %q, want %q", end.how, got, "kept")
		}
	}

	if err := b.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if answers(ctx, addrs) {
		t.Error("the broker still answers after Stop")
	}
}

func createTopic(ctx context.Context, t *testing.T, addrs []string, topic string) {
	t.Helper()
	client := newClient(t, addrs)
	if _, err := kadm.NewClient(client).CreateTopic(ctx, 1, 1, nil, topic); err != nil {
		t.Fatalf("creating the topic: %v", err)
	}
}

func produce(ctx context.Context, t *testing.T, addrs []string, topic, value string) {
	t.Helper()
	client := newClient(t, addrs)
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatalf("producing: %v", err)
	}
}

func consumeOne(ctx context.Context, t *testing.T, addrs []string, topic string) string {
	t.Helper()
	client := newClient(t, addrs, kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fetches := client.PollRecords(ctx, 1)
	if err := fetches.Err(); err != nil {
		t.Fatalf("consuming: %v", err)
	}
	return string(fetches.Records()[0].Value)
}

func answers(ctx context.Context, addrs []string) bool {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RequestRetries(0))
	if err != nil {
		return false
	}
	defer client.Close()
	return client.Ping(ctx) == nil
}

func newClient(t *testing.T, addrs []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addrs...))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// A record that the broker refuses has all that comes after it in its transaction refused
// with the same words: they were dead-lettered for it, with retries left. It is not among
// the tests of adapters/kafka, which run with the race detector: sarama's transaction
// manager reads its last error without its lock.
func TestARefusedRecordCondemnsNoneInItsTransaction(t *testing.T) {
	t.Parallel()
	const n, refusals = 20, 3
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"), kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders.billing.retry.100ms", Err: kerr.InvalidRecord, Count: refusals})
	writer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for i := range n {
		if err := writer.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	dead := make(chan redeliver.DeadLettered, 2*n)
	cfg := kafka.Config{
		Group: "billing", Transactions: true,
		Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(100 * time.Millisecond), Levels: []time.Duration{100 * time.Millisecond}},
		Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			if d, ok := e.(redeliver.DeadLettered); ok {
				dead <- d
			}
		}),
	}
	own := sarama.NewConfig()
	own.Version = sarama.V2_8_0_0
	own.Consumer.Offsets.Initial = sarama.OffsetOldest
	client, err := sarama.NewClient(cluster.ListenAddrs(), own)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(t.Context())
	var began sync.WaitGroup // so that all fail in one window
	began.Add(n)
	var first sync.Map
	over := make(chan error, 1)
	go func() {
		over <- kafka.Consume(ctx, client, cfg, []string{"orders"}, func(_ context.Context, m *sarama.ConsumerMessage) error {
			if _, again := first.LoadOrStore(string(m.Value), true); !again {
				began.Done()
			}
			began.Wait()
			return errors.New("declined")
		})
	}()
	reasons, deadline := make(map[redeliver.Reason]int), time.After(time.Minute)
	for range n {
		select {
		case d := <-dead:
			reasons[d.State.Reason]++
		case err := <-over:
			t.Fatalf("it ended: %v", err)
		case <-deadline:
			t.Fatalf("dead are %v, want %d", reasons, n)
		}
	}
	stop()
	if err := <-over; err != nil {
		t.Error(err)
	}
	if reasons[redeliver.ReasonExhausted] < n-refusals { // of one that was alone it is believed
		t.Errorf("dead are %v, want at least %d exhausted", reasons, n-refusals)
	}
}

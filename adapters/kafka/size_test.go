package kafka_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// randomBytes returns bytes that cannot be compressed.
func randomBytes(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
	return b
}

// The limit of the topic applies to a batch. Concurrent records must not share a batch that the broker refuses.
func TestRecordsThatFitAloneFitTogether(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", MaxInFlight: 500, Policy: redeliver.Policy{
		MaxRetries: 1, Backoff: redeliver.Fixed(100 * time.Millisecond), Levels: []time.Duration{100 * time.Millisecond},
	}})
	if err := c.Subscriber().SubscribeInitialize("orders"); err != nil {
		t.Fatal(err)
	}
	const n = 120
	var together sync.WaitGroup // the first attempts fail at once
	together.Add(n + 1)         // and the broker is slow
	route(t, c, "orders", func(msg *message.Message) error {
		if st, _ := redeliver.FromContext(msg.Context()); st.Attempts == 0 {
			together.Done()
			together.Wait()
		}
		return errDeclined
	})
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, &kgo.Record{Topic: "orders", Partition: 0, Key: fmt.Append(nil, i), Value: randomBytes(byte(i), 100<<10)})
	}
	put(t, addrs, recs...)
	ready := make(chan struct{})
	go func() { defer close(ready); together.Wait() }()
	var slow sync.Once
	// While the broker is busy with the first write, the others gather.
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		slow.Do(func() {
			cluster.SleepControl(func() {
				<-ready
				<-time.After(500 * time.Millisecond) // not for an event: the broker is slow
			})
		})
		return nil, nil, false
	})
	together.Done()
	ev.await(t, n, is[redeliver.DeadLettered])
	for _, f := range all[redeliver.PublishFailed](ev) {
		t.Fatalf("refused: %v", f.Err)
	}
}

func TestMessagesThatFitAloneArePublishedTogether(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	c, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing"})
	var msgs []*message.Message
	for i := range 120 {
		msg := message.NewMessage(fmt.Sprint(i), randomBytes(byte(i), 100<<10))
		kafka.SetKey(msg, []byte("one partition"))
		msgs = append(msgs, msg)
	}
	if err := c.Publisher().Publish("orders", msgs...); err != nil {
		t.Fatal(err)
	}
}

func TestTheLargestRecordFitsDelayTopicsAndDLQ(t *testing.T) {
	t.Parallel()
	addrs := fake(t).ListenAddrs()
	adm := kadm.NewClient(independent(t, addrs))
	limit := "3000000"
	if _, err := adm.CreateTopic(context.Background(), 1, 1, map[string]*string{"max.message.bytes": &limit}, "orders"); err != nil {
		t.Fatal(err)
	}
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: redeliver.Policy{
		MaxRetries: 1, Backoff: redeliver.Fixed(100 * time.Millisecond), Levels: []time.Duration{100 * time.Millisecond},
	}})
	route(t, c, "orders", func(*message.Message) error { return errDeclined })
	value := randomBytes(1, 2_999_900)
	cl := independent(t, addrs, kgo.ProducerBatchMaxBytes(3_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: value}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ev.await(t, 1, is[redeliver.DeadLettered])
	if got := read(t, addrs, "orders.billing.dlq", 1)[0].Value; !bytes.Equal(got, value) {
		t.Errorf("the DLQ has %d bytes, want the %d of the origin", len(got), len(value))
	}
	for _, f := range all[redeliver.PublishFailed](ev) {
		t.Errorf("refused: %v", f.Err)
	}
}

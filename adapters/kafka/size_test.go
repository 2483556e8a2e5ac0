package kafka_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// The limit of the topic is for a whole batch: records that are written at once
// must not be put into one that the broker refuses.
func TestRecordsThatFitAloneFitTogether(t *testing.T) {
	addrs := fake(t, "orders").ListenAddrs()
	c, ev := open(t, kafka.Config{Brokers: addrs, Group: "billing", MaxInFlight: 500, Policy: redeliver.Policy{
		MaxRetries: 1, Backoff: redeliver.Fixed(100 * time.Millisecond), Levels: []time.Duration{100 * time.Millisecond},
	}})
	if err := c.Subscriber().SubscribeInitialize("orders"); err != nil {
		t.Fatal(err)
	}
	const n = 120
	go1 := make(chan struct{})
	route(t, c, "orders", func(msg *message.Message) error {
		<-go1
		return errDeclined
	})
	big := bytes.Repeat([]byte("x"), 100<<10)
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, &kgo.Record{Topic: "orders", Partition: 0, Key: fmt.Append(nil, i), Value: big})
	}
	put(t, addrs, recs...)
	time.AfterFunc(time.Second, func() { close(go1) }) // so that they fail at once
	ev.await(t, n, is[redeliver.DeadLettered])
	for _, f := range all[redeliver.PublishFailed](ev) {
		t.Fatalf("refused: %v", f.Err)
	}
}

func TestMessagesThatFitAloneArePublishedTogether(t *testing.T) {
	addrs := fake(t, "orders").ListenAddrs()
	c, _ := open(t, kafka.Config{Brokers: addrs, Group: "billing"})
	var msgs []*message.Message
	for i := range 120 {
		msg := message.NewMessage(fmt.Sprint(i), bytes.Repeat([]byte("x"), 100<<10))
		kafka.SetKey(msg, []byte("one partition"))
		msgs = append(msgs, msg)
	}
	if err := c.Publisher().Publish("orders", msgs...); err != nil {
		t.Fatal(err)
	}
}

func TestTheLargestRecordOfTheOriginFitsItsDelayTopicsAndDLQ(t *testing.T) {
	addrs := fake(t).ListenAddrs()
	adm := kadm.NewClient(independent(t, addrs))
	limit := "3000000"
	if _, err := adm.CreateTopic(context.Background(), 1, 1, map[string]*string{"max.message.bytes": &limit}, "orders"); err != nil {
		t.Fatal(err)
	}
	c, ev := open(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: redeliver.Policy{
		MaxRetries: 1, Backoff: redeliver.Fixed(100 * time.Millisecond), Levels: []time.Duration{100 * time.Millisecond},
	}})
	route(t, c, "orders", func(*message.Message) error { return errDeclined })
	value := bytes.Repeat([]byte("0123456789"), 299_990)
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

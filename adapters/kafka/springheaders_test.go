package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/mq"
)

func TestALargeDeadLetterHasNoSpringHeaders(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	c, ev := openClient(t, kafka.Config{
		Brokers: addrs, Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}, SpringHeaders: true,
	})
	if err := c.Subscriber().SubscribeInitialize("orders"); err != nil {
		t.Fatal(err)
	}
	const maxBytes = 20 << 10
	alterSetting(t, fixture{addrs: addrs}, "max.message.bytes", fmt.Sprint(maxBytes), "orders.billing.dlq")
	route(t, c, "orders", func(*message.Message) error { return errDeclined })
	const n = 8
	for i := range n { // from one with enough room to one with hardly any
		rec := order("orders", fmt.Sprint(i))
		rec.Value = randomBytes(byte(i), maxBytes-1800+i*150)
		write(t, addrs, rec)
	}
	ev.await(t, n, is[redeliver.DeadLettered])
	with := 0
	for _, rec := range read(t, addrs, "orders.billing.dlq", n) {
		if slices.ContainsFunc(rec.Headers, func(h kgo.RecordHeader) bool { return strings.HasPrefix(h.Key, "kafka_dlt-") }) {
			with++
		}
	}
	if with == 0 || with == n {
		t.Errorf("%d of %d have them, want some", with, n)
	}
}

func TestForeignOptionsAreRefusedForOurDLQ(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	c, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing"})
	for field, cfg := range map[string]mq.DeadLetterConfig{
		"ReplayTo": {Topic: "orders", ReplayTo: "orders-retry"},
		"ReadBy":   {Topic: "orders", ReadBy: "billing-retry"},
	} {
		if _, err := c.Operations().DeadLetters(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

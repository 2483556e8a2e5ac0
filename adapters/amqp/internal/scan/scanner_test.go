package scan

import (
	"slices"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
)

// The broker sends another message for each ack to the consumer that delivered the acked one, and none if that has ended.
// Next once waited forever for messages that the broker did not send.
func TestAcksForEarlierConsumersBringNoMessages(t *testing.T) {
	server := amqptest.NewServer(t)
	g := &scanChannel{ch: server.Ch}
	h := &Scanner{conn: server.Conn, queue: "orders.dlq", bytes: 1 << 20, channels: append(slices.Repeat([]*scanChannel{{}}, maxScanChannels-1), g)}
	begin := func() {
		t.Helper()
		if err := h.consume(50); err != nil {
			t.Fatal(err)
		}
		h.available = 100
	}
	ack := func(want int, tags ...uint64) {
		t.Helper()
		var all []Mark
		for _, tag := range tags {
			all = append(all, Mark{g, tag})
		}
		if n, err := h.Ack(all); n != len(tags) || err != nil || h.batch != want {
			t.Errorf("acked %d, and the consumer gets %d, want %d and %d: %v", n, h.batch, len(tags), want, err)
		}
	}
	begin()
	h.add(amqp091.Delivery{DeliveryTag: 1})
	h.add(amqp091.Delivery{DeliveryTag: 2})
	ack(51, 1)
	if err := h.stopConsumer(); err != nil {
		t.Fatal(err)
	}
	begin()
	h.add(amqp091.Delivery{DeliveryTag: 3})
	ack(51, 3, 2)
}

// A message with a priority that came after the scan began is delivered before older ones. A replay or a purge once took
// it in place of one of those.
func TestMessagesThatComeDuringAScanAreLeftOut(t *testing.T) {
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	death := func(at time.Time) amqp091.Table { return amqp091.Table{"x-death": []any{amqp091.Table{"time": at}}} }
	failed := func(at time.Time) amqp091.Table {
		return amqp091.Table{"redeliver-last-failed": at.Format(time.RFC3339Nano)}
	}
	for name, row := range map[string]struct {
		headers  amqp091.Table
		priority uint8
		left     bool
	}{
		"dead-lettered before": {death(began.Add(-time.Second)), 9, false},
		"dead-lettered later":  {death(began), 9, true},
		"failed before":        {failed(began.Add(-time.Millisecond)), 1, false},
		"failed later":         {failed(began.Add(time.Millisecond)), 1, true},
		"without a priority":   {death(began.Add(time.Minute)), 0, false},
		"without a time":       {nil, 9, false},
	} {
		h := &Scanner{began: began, channels: []*scanChannel{{}}}
		h.add(amqp091.Delivery{DeliveryTag: 1, Priority: row.priority, Headers: row.headers})
		if got := len(h.buf) == 0; got != row.left || len(h.lastChannel().open) != 1 {
			t.Errorf("%s: left out %t, want %t, and unsettled: %v", name, got, row.left, h.lastChannel().open)
		}
	}
}

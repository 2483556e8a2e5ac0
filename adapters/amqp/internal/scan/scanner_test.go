package scan

import (
	"slices"
	"testing"

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

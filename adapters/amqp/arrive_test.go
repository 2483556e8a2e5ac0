package amqp

import (
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// A classic queue passes on the x-delivery-count that a message brings, and counts nothing. A message with such a header
// that kills its process once came back forever.
func TestAClassicQueueCountsNoDeliveries(t *testing.T) {
	for _, order := range []redeliver.Order{redeliver.OrderNone, redeliver.OrderBlocking} {
		for _, classic := range []bool{false, true} {
			f := newOrderedQueue(t, Config{Policy: redeliver.Policy{Order: order}}, nil)
			f.r.classic.Store(classic)
			s, in := f.source(true)
			in <- amqp091.Delivery{MessageId: "a", DeliveryTag: 1, Redelivered: true, Headers: amqp091.Table{"x-delivery-count": int64(1)}}
			m := parsed(s, in)[0]
			if rewritten, suspect := m.Step == driver.StepHop && m.Record.rewrite, m.Record.suspect; rewritten != (classic && order == redeliver.OrderNone) || suspect != (classic && order == redeliver.OrderBlocking) {
				t.Errorf("%s, classic %t: rewritten %t, suspect %t", order, classic, rewritten, suspect)
			}
			s.finishTest()
		}
	}
}

//go:build prove

package amqp_test

import (
	"errors"
	"io"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
)

// Since RabbitMQ 4.0 a quorum queue delivers messages with a high priority first. A scan of a queue that RabbitMQ fills
// once ended with messages that had come after its start, and left as many old ones.
func TestAScanLeavesOutWhatComesLater(t *testing.T) {
	t.Parallel()
	d := newFailingService(t, brokers.RequireRabbitMQ4(t), nil)
	d.fillByBroker(amqp091.Table{})
	const old, later = 100, 60
	reject := func(n int, id string, priority uint8) {
		for range n {
			d.reject(d.queue, amqp091.Publishing{MessageId: id, Priority: priority, DeliveryMode: amqp091.Persistent})
		}
	}
	reject(old, "old", 0)
	d.awaitReady(d.queue+".others", old)
	q := d.openFilledByBroker()
	defer q.Close()
	scan, err := q.Scan(t.Context(), deadletter.FromStart)
	if err != nil {
		t.Fatal(err)
	}
	defer scan.Close()
	found := make(map[string]int)
	for n := 0; ; n++ {
		m, err := scan.Next(t.Context(), nil)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if found[m.ID]++; n == 0 {
			reject(later, "later", 9)
		}
	}
	if found["old"] != old || found["later"] != 0 {
		t.Errorf("the scan found %v, want %d old ones", found, old)
	}
}

package dlq

import (
	"reflect"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/scan"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/wirename"
)

var buried = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// testDeadLetter returns a delivery of redeliver's DLQ with properties and headers of every kind, and the broker's
// own.
func testDeadLetter() (d amqp091.Delivery, was amqp091.Publishing) {
	was = amqp091.Publishing{
		Headers: amqp091.Table{
			"text": "t", "bytes": []byte{0, 0xff}, "int": int32(-7), "long": int64(1) << 60, "yes": true, "real": 1.5, "at": buried, "byte": byte(200),
			wirename.WatermillUUID: "u-1", "CC": "x",
		},
		ContentType: "application/json", ContentEncoding: "gzip", DeliveryMode: amqp091.Transient, Priority: 3, CorrelationId: "c", ReplyTo: "r",
		Expiration: "5000", MessageId: "m", Timestamp: buried, Type: "order", UserId: "guest", AppId: "shop", Body: []byte("{}"),
	}
	rec := wire.Record{Delivery: wire.DeliveryOf(was, "shop", "orders.new")}
	st := redeliver.State{
		ID: "u-1", Group: "orders", Origin: "orders", Attempts: 4, Reason: redeliver.ReasonExhausted, Error: "card declined",
		ErrorType: "*errors.errorString", FirstFailed: buried, LastFailed: buried.Add(time.Minute),
	}
	d = wire.DeliveryOf(rec.DeadCopy(&st, 0), "", "orders.dlq")
	d.Headers["x-delivery-count"] = int64(2)
	d.DeliveryTag = 9
	return d, was
}

func testDeadLetters() *Queue {
	return &Queue{info: deadletter.Info{Broker: "rabbitmq", DLQ: "orders.dlq", Origin: "orders", Group: "orders", ReplayTo: "orders.retry"}}
}

func (q *Queue) readCopy(d amqp091.Delivery) *deadletter.Message {
	return q.readMessage(&scan.Message{Delivery: d})
}

// A replay publishes the original message, also after a file.
func TestReplayRestoresTheMessage(t *testing.T) {
	d, was := testDeadLetter()
	q := testDeadLetters()
	m := q.readCopy(d)
	if m.State.Attempts != 4 || m.Mismatch != "" || m.Writer != deadletter.WriterRedeliver || !m.Time.Equal(m.State.LastFailed) {
		t.Errorf("it says %+v", m)
	}
	if again := wire.PlainCopy(&recordFrom(m, m.Headers, nil).Delivery); !reflect.DeepEqual(again, was) {
		t.Errorf("the replay is %+v, want %+v", again, was)
	}
	added := exportAndImport(t, m)
	if added.State != m.State {
		t.Errorf("imported as %+v, want %+v", added.State, m.State)
	}
	if again := wire.PlainCopy(&recordFrom(added, added.Headers, nil).Delivery); !reflect.DeepEqual(again, was) {
		t.Errorf("read from the file it is %+v, want %+v", again, was)
	}
}

// A position depends on the message, and not on the broker's counts.
func TestPositionDoesNotChangeWithDeliveries(t *testing.T) {
	d, _ := testDeadLetter()
	first := testDeadLetters().readCopy(d).Position
	d, _ = testDeadLetter()
	d.Headers["x-delivery-count"], d.Redelivered = int64(77), true
	if again := testDeadLetters().readCopy(d).Position; again != first {
		t.Errorf("after scans it is at %s, not %s", again, first)
	}
	d, _ = testDeadLetter()
	d.MessageId = "another"
	if other := testDeadLetters().readCopy(d).Position; other == first {
		t.Error("another message is at the same position")
	}
}

// An edited header is text; the others keep their types.
func TestEditKeepsTheTypesOfOtherHeaders(t *testing.T) {
	d, was := testDeadLetter()
	m := testDeadLetters().readCopy(d)
	for i, h := range m.Headers {
		if h.Name == "text" {
			m.Headers[i].Value = []byte("new")
		}
	}
	m.Headers = append(m.Headers, deadletter.Header{Name: "x-death", Value: []byte("[]")})
	again := recordFrom(m, m.Headers, nil).Headers
	was.Headers["text"] = "new"
	if !reflect.DeepEqual(again, was.Headers) {
		t.Errorf("the headers are %#v, want %#v", again, was.Headers)
	}
}

package wire

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/wirename"
)

func dlqOf(queue string) string { return queue + wirename.DLQSuffix }

// deliveryOfCopy returns the delivery of a copy from its queue.
func deliveryOfCopy(p amqp091.Publishing, queue string) amqp091.Delivery {
	d := DeliveryOf(p, "", queue)
	d.Headers = maps.Clone(p.Headers)
	return d
}

// The consumer of a DLQ gets a dead letter as it was first published, at every attempt. Its own DLQ gets the message
// as it was in the first DLQ.
func TestConsumerOfADLQGetsTheOriginalMessage(t *testing.T) {
	published := amqp091.Delivery{
		Exchange: "shop", RoutingKey: "orders.new", Expiration: "60000", Priority: 9, Type: "order", AppId: "till", DeliveryMode: amqp091.Persistent,
		Headers: amqp091.Table{"tenant": "acme", "redeliver-forged": "1"}, Body: []byte("b"),
	}
	state := redeliver.State{
		ID: IDOf(&published), Group: "orders", Origin: "orders", Attempts: 3, Reason: redeliver.ReasonExhausted, Error: "declined",
		LastFailed: time.Now().UTC().Truncate(time.Millisecond),
	}
	lay := deliveryOfCopy((&Record{Delivery: published}).Publishing(&state), "orders.dlq")
	r := &Record{Delivery: lay}
	if found := r.ReadDeadLetter("orders.dlq", dlqOf); len(found) > 0 {
		t.Errorf("findings: %+v", found)
	}
	check := func(r *Record) {
		t.Helper()
		if !reflect.DeepEqual(r.Delivery, published) {
			t.Errorf("it is read as\n%+v, want\n%+v", r.Delivery, published)
		}
		if r.DeadLetter == nil || r.DeadLetter.Attempts != 3 || r.DeadLetter.Error != "declined" || r.StateID() != state.ID {
			t.Errorf("its state in the DLQ is %+v, id %s, want %+v", r.DeadLetter, r.StateID(), state)
		}
	}
	check(r)
	own := redeliver.State{ID: state.ID, Group: "orders.dlq", Origin: "orders.dlq", Attempts: 1, Due: time.Now().Add(time.Minute)}
	p, err := r.WaitingCopy(&own, time.Time{}, 0, WaitingRoom)
	if err != nil {
		t.Fatal(err)
	}
	again := &Record{Delivery: deliveryOfCopy(p, "orders.dlq.retry")}
	ours, findings := RestoreOriginal(&again.Delivery)
	if st, found := driver.ParseHeaders("orders.dlq", ours); len(found)+len(findings) > 0 || st.Origin != "orders.dlq" || st.Attempts != 1 {
		t.Errorf("the retry has the state %+v: %+v, %+v", st, found, findings)
	}
	again.ReadDeadLetter("orders.dlq", dlqOf)
	check(again)
	if !reflect.DeepEqual(again.Copied.Headers, lay.Headers) {
		t.Errorf("a copy has the headers %v, want those of the DLQ, %v", again.Copied.Headers, lay.Headers)
	}
	if life := ExpiryOf(again.Own(), time.Now()); !life.IsZero() {
		t.Errorf("the dead letter expires at %s, by the expiration of the original message", life)
	}
}

// A producer's headers are not trusted in our DLQ if RabbitMQ moved the message there, also not at its retries.
func TestStateOfAMessageThatRabbitMQMovedIsNotTrusted(t *testing.T) {
	forged := redeliver.State{ID: "1", Group: "orders", Origin: "orders", Attempts: 3, Reason: redeliver.ReasonExhausted}
	lay := deliveryOfCopy((&Record{Delivery: amqp091.Delivery{Body: []byte("b")}}).Publishing(&forged), "orders.dlq")
	lay.Headers["x-death"] = []any{amqp091.Table{"queue": "orders", "reason": "expired"}}
	r := &Record{Delivery: lay}
	if r.ReadDeadLetter("orders.dlq", dlqOf); r.DeadLetter != nil {
		t.Errorf("the state %+v is trusted", r.DeadLetter)
	}
	own := redeliver.State{ID: "1", Group: "orders.dlq", Origin: "orders.dlq", Attempts: 1, Due: time.Now().Add(time.Minute)}
	p, err := r.WaitingCopy(&own, time.Time{}, 0, WaitingRoom)
	if err != nil {
		t.Fatal(err)
	}
	again := &Record{Delivery: deliveryOfCopy(p, "orders.dlq.retry")}
	again.Headers["x-death"] = []any{amqp091.Table{"queue": "orders.dlq.retry.1m", "reason": "expired"}}
	RestoreOriginal(&again.Delivery)
	if again.ReadDeadLetter("orders.dlq", dlqOf); again.DeadLetter != nil {
		t.Errorf("the state %+v is trusted at a retry", again.DeadLetter)
	}
}

// A state that names another DLQ is not trusted.
func TestStateOfAnotherDLQIsNotTrusted(t *testing.T) {
	state := redeliver.State{ID: "1", Group: "orders", Origin: "orders", Attempts: 3, Reason: redeliver.ReasonExhausted}
	lay := deliveryOfCopy((&Record{Delivery: amqp091.Delivery{Body: []byte("b")}}).Publishing(&state), "invoices.dlq")
	r := &Record{Delivery: lay}
	r.ReadDeadLetter("invoices.dlq", dlqOf)
	if r.DeadLetter != nil || r.Copied != nil || !reflect.DeepEqual(r.Delivery, lay) {
		t.Errorf("a dead letter of %s is trusted in invoices.dlq: %+v", r.DeadLetter.Origin, r.Delivery)
	}
	names := slices.Sorted(maps.Keys(lay.Headers))
	if found := ForeignHeaders(r.Headers, ""); len(found) == 0 {
		t.Errorf("its headers %v are not reported", names)
	}
}

package amqp

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
)

// deliveryOfCopy returns the delivery of a copy from its queue.
func deliveryOfCopy(p amqp091.Publishing, queue string) amqp091.Delivery {
	d := deliveryOf(p, "", queue)
	d.Headers = maps.Clone(p.Headers)
	return d
}

// The consumer of a DLQ gets a dead letter as it was first published, at every attempt. Its own DLQ gets the message
// as it was in the first DLQ.
func TestConsumerOfADLQGetsTheOriginalMessage(t *testing.T) {
	published := amqp091.Delivery{
		Exchange: "shop", RoutingKey: "orders.new", Expiration: "60000", Type: "order", AppId: "till", DeliveryMode: amqp091.Persistent,
		Headers: amqp091.Table{"tenant": "acme", "redeliver-forged": "1"}, Body: []byte("b"),
	}
	state := redeliver.State{
		ID: idOf(&published), Group: "orders", Origin: "orders", Attempts: 3, Reason: redeliver.ReasonExhausted, Error: "declined",
		LastFailed: time.Now().UTC().Truncate(time.Millisecond),
	}
	lay := deliveryOfCopy((&record{Delivery: published}).publishing(&state), "orders.dlq")
	r := &record{Delivery: lay}
	if found := r.readDeadLetter("orders.dlq", queueNames{}.dlq); len(found) > 0 {
		t.Errorf("findings: %+v", found)
	}
	check := func(r *record) {
		t.Helper()
		if !reflect.DeepEqual(r.Delivery, published) {
			t.Errorf("it is read as\n%+v, want\n%+v", r.Delivery, published)
		}
		if r.deadLetter == nil || r.deadLetter.Attempts != 3 || r.deadLetter.Error != "declined" || r.stateID() != state.ID {
			t.Errorf("its state in the DLQ is %+v, id %s, want %+v", r.deadLetter, r.stateID(), state)
		}
	}
	check(r)
	own := redeliver.State{ID: state.ID, Group: "orders.dlq", Origin: "orders.dlq", Attempts: 1, Due: time.Now().Add(time.Minute)}
	p, err := r.waitingCopy(&own, time.Time{}, 0, waitingRoom)
	if err != nil {
		t.Fatal(err)
	}
	again := &record{Delivery: deliveryOfCopy(p, "orders.dlq.retry")}
	ours, findings := restoreOriginal(&again.Delivery)
	if st, found := redeliver.ParseHeaders("orders.dlq", ours); len(found)+len(findings) > 0 || st.Origin != "orders.dlq" || st.Attempts != 1 {
		t.Errorf("the retry has the state %+v: %+v, %+v", st, found, findings)
	}
	again.readDeadLetter("orders.dlq", queueNames{}.dlq)
	check(again)
	if !reflect.DeepEqual(again.copied.Headers, lay.Headers) {
		t.Errorf("a copy has the headers %v, want those of the DLQ, %v", again.copied.Headers, lay.Headers)
	}
	if life := expiryOf(again.own(), time.Now()); !life.IsZero() {
		t.Errorf("the dead letter expires at %s, by the expiration of the original message", life)
	}
}

// A producer's headers are not trusted in our DLQ if RabbitMQ moved the message there, also not at its retries.
func TestStateOfAMessageThatRabbitMQMovedIsNotTrusted(t *testing.T) {
	forged := redeliver.State{ID: "1", Group: "orders", Origin: "orders", Attempts: 3, Reason: redeliver.ReasonExhausted}
	lay := deliveryOfCopy((&record{Delivery: amqp091.Delivery{Body: []byte("b")}}).publishing(&forged), "orders.dlq")
	lay.Headers["x-death"] = []any{amqp091.Table{"queue": "orders", "reason": "expired"}}
	r := &record{Delivery: lay}
	if r.readDeadLetter("orders.dlq", queueNames{}.dlq); r.deadLetter != nil {
		t.Errorf("the state %+v is trusted", r.deadLetter)
	}
	own := redeliver.State{ID: "1", Group: "orders.dlq", Origin: "orders.dlq", Attempts: 1, Due: time.Now().Add(time.Minute)}
	p, err := r.waitingCopy(&own, time.Time{}, 0, waitingRoom)
	if err != nil {
		t.Fatal(err)
	}
	again := &record{Delivery: deliveryOfCopy(p, "orders.dlq.retry")}
	again.Headers["x-death"] = []any{amqp091.Table{"queue": "orders.dlq.retry.1m", "reason": "expired"}}
	restoreOriginal(&again.Delivery)
	if again.readDeadLetter("orders.dlq", queueNames{}.dlq); again.deadLetter != nil {
		t.Errorf("the state %+v is trusted at a retry", again.deadLetter)
	}
}

// A state that names another DLQ is not trusted.
func TestStateOfAnotherDLQIsNotTrusted(t *testing.T) {
	state := redeliver.State{ID: "1", Group: "orders", Origin: "orders", Attempts: 3, Reason: redeliver.ReasonExhausted}
	lay := deliveryOfCopy((&record{Delivery: amqp091.Delivery{Body: []byte("b")}}).publishing(&state), "invoices.dlq")
	r := &record{Delivery: lay}
	r.readDeadLetter("invoices.dlq", queueNames{}.dlq)
	if r.deadLetter != nil || r.copied != nil || !reflect.DeepEqual(r.Delivery, lay) {
		t.Errorf("a dead letter of %s is trusted in invoices.dlq: %+v", r.deadLetter.Origin, r.Delivery)
	}
	names := slices.Sorted(maps.Keys(lay.Headers))
	if found := foreignHeaders(r.Headers, ""); len(found) == 0 {
		t.Errorf("its headers %v are not reported", names)
	}
}

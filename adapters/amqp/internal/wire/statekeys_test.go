package wire

import (
	"maps"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// A signed state is trusted as the broker delivers it. A changed one counts as no state.
func TestSignedStateIsTrusted(t *testing.T) {
	keys := statekeys.Keys{[]byte("sixteen bytes and more")}
	user := amqp091.Delivery{Body: []byte("b"), Expiration: "1000", ReplyTo: directReplyTo, RoutingKey: "orders", Headers: amqp091.Table{
		"mine": int32(1), "CC": []any{"x"}, "redeliver-id": "copied", "redeliver-odd": amqp091.Table{"f": float32(1.5), "n": nil, "b": []byte{1}, "t": time.Unix(1, 0)},
	}}
	st := redeliver.State{ID: "a", Group: "orders", Origin: "orders", Attempts: 2, Error: "no"}
	written := func(r Record) amqp091.Delivery {
		r.Copies = 1
		p, err := r.WaitingCopy(&st, time.Unix(9, 0), 131072, WaitingRoom)
		if err != nil {
			t.Fatal(err)
		}
		return deliveryOfCopy(p, "orders.retry")
	}
	for name, tt := range map[string]struct {
		keys     statekeys.Keys
		change   func(*amqp091.Delivery)
		believed bool
	}{
		"as it was written": {keys, func(*amqp091.Delivery) {}, true},
		"with the broker's": {keys, func(d *amqp091.Delivery) { d.Headers["x-death"] = []any{}; d.Headers["x-delivery-count"] = int64(3) }, true},
		"not signed":        {nil, func(*amqp091.Delivery) {}, false},
		"another attempt":   {keys, func(d *amqp091.Delivery) { d.Headers[redeliver.HeaderAttempt] = "0" }, false},
		"a header more":     {keys, func(d *amqp091.Delivery) { d.Headers[redeliver.HeaderReplays] = "1" }, false},
		"another body":      {keys, func(d *amqp091.Delivery) { d.Body = []byte("c") }, false},
		"another way":       {keys, func(d *amqp091.Delivery) { d.Headers[HeaderRoutingKey] = "refunds" }, false},
		"as if rarely":      {keys, func(d *amqp091.Delivery) { delete(d.Headers, headerCopies) }, false},
		"our signature without the other headers": {keys, func(d *amqp091.Delivery) {
			d.Headers = amqp091.Table{HeaderMAC: d.Headers[HeaderMAC], redeliver.HeaderAttempt: "0"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := written(Record{Delivery: user, Keys: tt.keys})
			d.Headers = maps.Clone(d.Headers)
			tt.change(&d)
			found := StripUnsigned(keys, statekeys.Waiting, &d)
			ours, _ := RestoreOriginal(&d)
			if believed := len(ours) > 0; believed != tt.believed || believed == (len(found) > 0) {
				t.Errorf("accepted is %v with findings %v, want %v", believed, found, tt.believed)
			}
		})
	}
	d := written(Record{Delivery: user, Keys: keys})
	if now := deliveryOfCopy(Released(&d, time.Now(), keys), "orders.retry"); !verify(keys, statekeys.Waiting, &now) {
		t.Error("the released message is not signed")
	}
	forged := written(Record{Delivery: user})
	if now := deliveryOfCopy(Released(&forged, time.Now(), keys), "orders.retry"); verify(keys, statekeys.Waiting, &now) {
		t.Error("a forged state is signed when it is released")
	}
	dead := deliveryOfCopy((&Record{Delivery: user, Keys: keys}).DeadCopy(&st, 131072), "orders.dlq")
	if !verify(keys, statekeys.DeadLetter, &dead) {
		t.Error("a dead letter is not signed")
	}
}

// A signature is of one state. Values may contain what separates them: an id is chosen by the producer, who could otherwise have the text
// of another state signed.
func TestASignatureIsOfOneState(t *testing.T) {
	const policy = "00c0ffee00c0ffee"
	for name, pair := range map[string][2]amqp091.Table{
		"an id with the headers behind it": {
			{redeliver.HeaderID: "victim-42\x00redeliver-policy\x00" + policy + "\x00redeliver-trace", redeliver.HeaderPolicy: "own"},
			{redeliver.HeaderID: "victim-42", redeliver.HeaderPolicy: policy, redeliver.HeaderTrace: "redeliver-policy\x00own"},
		},
		"a value that begins in another":  {{"redeliver-a": "b", "redeliver-c": ""}, {"redeliver-a": "", "redeliver-c": "b"}},
		"a name with a separator":         {{"redeliver-a\x00b": "c"}, {"redeliver-a": "b\x00c"}},
		"a number and its text":           {{"redeliver-a": int32(1)}, {"redeliver-a": "1"}},
		"numbers of two sizes":            {{"redeliver-a": int32(1)}, {"redeliver-a": int64(1)}},
		"bytes and text":                  {{"redeliver-a": []byte("1")}, {"redeliver-a": "1"}},
		"bytes that are not UTF-8":        {{HeaderForeign: amqp091.Table{"redeliver-\xff": "\xfe"}}, {HeaderForeign: amqp091.Table{"redeliver-\xfe": "\xff"}}},
		"a table and its JSON":            {{HeaderForeign: amqp091.Table{"a": "b"}}, {HeaderForeign: `{"a":"b"}`}},
		"no value and no header":          {{"redeliver-a": nil}, {}},
		"an empty text and no value":      {{"redeliver-a": nil}, {"redeliver-a": ""}},
		"a name in the place of a value":  {{"redeliver-a": "redeliver-b", "redeliver-b": "c"}, {"redeliver-a": "redeliver-b\x00c"}},
		"a list and its items as another": {{HeaderForeign: []any{"a", "b"}}, {HeaderForeign: []any{"a", []any{"b"}}}},
	} {
		if one, other := signed(pair[0]), signed(pair[1]); one == other {
			t.Errorf("%s: both states have the text %s", name, one)
		}
	}
}

// A dead letter that somebody puts into a queue from which messages come back is not believed there.
func TestASignedDeadLetterDoesNotComeBack(t *testing.T) {
	keys := statekeys.Keys{[]byte("sixteen bytes and more")}
	st := redeliver.State{ID: "a", Group: "orders", Origin: "orders", Attempts: 4, Reason: redeliver.ReasonExhausted}
	d := deliveryOfCopy((&Record{Keys: keys, Delivery: amqp091.Delivery{Body: []byte("b")}}).DeadCopy(&st, 131072), "orders.retry")
	if found := StripUnsigned(keys, statekeys.Waiting, &d); len(found) == 0 {
		t.Error("the state of a dead letter is believed in the retry queue")
	}
}

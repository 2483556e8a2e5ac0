package amqp

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

func TestIDs(t *testing.T) {
	long := strings.Repeat("i", 600)
	for name, row := range map[string]struct {
		d    amqp091.Delivery
		want string
	}{
		"uuid":          {amqp091.Delivery{Headers: amqp091.Table{UUIDHeader: "u"}, MessageId: "m"}, "u"},
		"message id":    {amqp091.Delivery{MessageId: "m"}, "m"},
		"no text":       {amqp091.Delivery{Headers: amqp091.Table{UUIDHeader: int32(1)}, MessageId: "m"}, "m"},
		"bytes":         {amqp091.Delivery{Headers: amqp091.Table{UUIDHeader: []byte("u")}, MessageId: "m"}, "m"},
		"empty":         {amqp091.Delivery{Headers: amqp091.Table{UUIDHeader: ""}, MessageId: "m"}, "m"},
		"too long":      {amqp091.Delivery{Headers: amqp091.Table{UUIDHeader: long}}, limits.ShortID(long)},
		"invalid UTF-8": {amqp091.Delivery{MessageId: "\xff"}, limits.ShortID("\xff")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := idOf(&row.d); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

// A derived id depends only on the publisher's part. It is the same at every read and on every host.
func TestDerivedIDIsStable(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	fresh := func() amqp091.Delivery {
		return amqp091.Delivery{
			Exchange: "e", RoutingKey: "k", ContentType: "c", CorrelationId: "i", Type: "t", AppId: "a", Timestamp: at, Body: []byte("b"),
			Headers: amqp091.Table{"n": int32(1), "at": at, "deep": amqp091.Table{"at": []any{at, amqp091.Table{"at": at}}}},
		}
	}
	first := fresh()
	want := idOf(&first)
	if !strings.HasPrefix(want, "derived:") || len(want) != len("derived:")+32 {
		t.Fatal(want)
	}
	for name, change := range map[string]func(*amqp091.Delivery){
		"nothing":       func(*amqp091.Delivery) {},
		"redelivered":   func(d *amqp091.Delivery) { d.Redelivered = true; d.Headers["x-delivery-count"] = int64(2) },
		"dead-lettered": func(d *amqp091.Delivery) { d.Headers["x-death"] = []any{}; d.Headers["x-first-death-queue"] = "q" },
		"elsewhere": func(d *amqp091.Delivery) {
			zone(d.Headers, time.FixedZone("there", 3600))
			d.Timestamp = d.Timestamp.UTC()
		},
		"other consumer": func(d *amqp091.Delivery) { d.ConsumerTag, d.DeliveryTag = "c", 7 },
	} {
		d := fresh()
		change(&d)
		if got := idOf(&d); got != want {
			t.Errorf("%s: the id changed", name)
		}
	}
	for name, change := range map[string]func(*amqp091.Delivery){
		"body":            func(d *amqp091.Delivery) { d.Body = []byte("c") },
		"no body":         func(d *amqp091.Delivery) { d.Body = nil },
		"exchange":        func(d *amqp091.Delivery) { d.Exchange = "" },
		"key":             func(d *amqp091.Delivery) { d.RoutingKey = "x" },
		"exchange to key": func(d *amqp091.Delivery) { d.Exchange, d.RoutingKey = "ek", "" },
		"content type":    func(d *amqp091.Delivery) { d.ContentType = "" },
		"correlation id":  func(d *amqp091.Delivery) { d.CorrelationId = "" },
		"type":            func(d *amqp091.Delivery) { d.Type = "" },
		"app":             func(d *amqp091.Delivery) { d.AppId = "" },
		"time":            func(d *amqp091.Delivery) { d.Timestamp = at.Add(time.Second) },
		"no time":         func(d *amqp091.Delivery) { d.Timestamp = time.Time{} },
		"header":          func(d *amqp091.Delivery) { d.Headers["n"] = int32(2) },
		"header more":     func(d *amqp091.Delivery) { d.Headers["m"] = nil },
		"header deep":     func(d *amqp091.Delivery) { d.Headers["deep"] = amqp091.Table{"at": []any{at.Add(time.Second)}} },
	} {
		d := fresh()
		change(&d)
		if got := idOf(&d); got == want {
			t.Errorf("%s: the id is the same", name)
		}
	}
}

// zone returns the times of a table as a host in that zone reads them.
func zone(v any, z *time.Location) any {
	switch v := v.(type) {
	case time.Time:
		return v.In(z)
	case amqp091.Table:
		for name, item := range v {
			v[name] = zone(item, z)
		}
	case []any:
		for i, item := range v {
			v[i] = zone(item, z)
		}
	}
	return v
}

func TestMetadataHasTextHeaders(t *testing.T) {
	d := amqp091.Delivery{Body: []byte("b"), Headers: amqp091.Table{
		"text": "t", "bytes": []byte("\xff"), "true": true, "time": time.Unix(0, 0), "int8": int8(-1), "byte": byte(255), "uint32": uint32(1 << 31), "float": 1.5,
		"decimal": amqp091.Decimal{Scale: 2, Value: -1234}, "whole": amqp091.Decimal{Value: 5}, "small": amqp091.Decimal{Scale: 3, Value: 7},
		"null": nil, "table": amqp091.Table{}, "array": []any{}, UUIDHeader: "u",
	}}
	msg, err := DefaultMarshaler{}.Unmarshal(&d)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"text": "t", "bytes": "\xff", "true": "true", "time": "1970-01-01T00:00:00Z", "int8": "-1", "byte": "255", "uint32": "2147483648", "float": "1.5",
		"decimal": "-12.34", "whole": "5", "small": "0.007",
	}
	for name, v := range want {
		if msg.Metadata[name] != v {
			t.Errorf("%s is %q, want %q", name, msg.Metadata[name], v)
		}
	}
	if len(msg.Metadata) != len(want) || msg.UUID != "u" {
		t.Errorf("%s with %v", msg.UUID, msg.Metadata)
	}
	msg.Payload[0] = '!'
	if !bytes.Equal(d.Body, []byte("b")) {
		t.Error("the handler's payload is retried, not the message's own")
	}
}

// A published message is read back unchanged, with its UUID even if that is not a valid id.
func TestMarshalRoundTrip(t *testing.T) {
	for _, uuid := range []string{"u", strings.Repeat("u", 1000), "\xff"} {
		msg := message.NewMessage(uuid, []byte("payload"))
		msg.Metadata.Set("a", "1")
		p, err := DefaultMarshaler{}.Marshal("orders", msg)
		if err != nil {
			t.Fatal(err)
		}
		d := deliveryOf(p, "", "orders")
		got, err := DefaultMarshaler{}.Unmarshal(&d)
		if err != nil || !got.Equals(msg) || p.DeliveryMode != amqp091.Persistent {
			t.Errorf("%+v %v of mode %d, want %+v", got, err, p.DeliveryMode, msg)
		}
	}
}

// faultyMarshaler is a marshaler that violates its contract.
type faultyMarshaler struct {
	Marshaler
	panics any
	err    error
}

func (o faultyMarshaler) Unmarshal(*amqp091.Delivery) (*message.Message, error) {
	if o.panics != nil {
		panic(o.panics)
	}
	return nil, o.err
}

func TestFailingMarshalerIsUndecodable(t *testing.T) {
	boom := errors.New("boom")
	if _, err := (&record{marshaler: faultyMarshaler{err: boom}}).message(); !errors.Is(err, boom) {
		t.Error(err)
	}
	if _, err := (&record{marshaler: faultyMarshaler{}}).message(); err == nil || !strings.Contains(err.Error(), "no message") {
		t.Error(err)
	}
	_, err := (&record{marshaler: faultyMarshaler{panics: boom}}).message()
	if p, ok := errors.AsType[*redeliver.PanicError](err); !ok || !errors.Is(err, boom) || len(p.Stack) == 0 {
		t.Errorf("%v", err)
	}
}

func TestContextOfAnotherMessageHasNoDelivery(t *testing.T) {
	if d := DeliveryFromContext(t.Context()); d != nil {
		t.Errorf("%v", d)
	}
}

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
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/binding"
)

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
		d := wire.DeliveryOf(p, "", "orders")
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
	message := func(m Marshaler) error {
		_, err := binding.New(toWatermill(m)).Message(&driver.Message[*delivery]{Record: new(delivery)})
		return err
	}
	if err := message(faultyMarshaler{err: boom}); !errors.Is(err, boom) {
		t.Error(err)
	}
	if err := message(faultyMarshaler{}); err == nil || !strings.Contains(err.Error(), "no message") {
		t.Error(err)
	}
	err := message(faultyMarshaler{panics: boom})
	if p, ok := errors.AsType[*redeliver.PanicError](err); !ok || !errors.Is(err, boom) || len(p.Stack) == 0 {
		t.Errorf("%v", err)
	}
}

func TestContextOfAnotherMessageHasNoDelivery(t *testing.T) {
	if d := DeliveryFromContext(t.Context()); d != nil {
		t.Errorf("%v", d)
	}
}

package dlq

import (
	"reflect"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
)

// tableOf returns a header table from lines "kind name=value", with values of any type.
func tableOf(block string) amqp091.Table {
	table := amqp091.Table{}
	for line := range strings.SplitSeq(block, "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		name, value, _ := strings.Cut(rest, "=")
		switch kind {
		case "table":
			table[name] = amqp091.Table{value: value, redeliver.HeaderPrefix + value: int64(1)}
		case "list":
			table[name] = []any{value, nil, amqp091.Table{"a": value}}
		case "null":
			table[name] = nil
		default:
			table[name] = parseTyped(kind, []byte(value))
		}
	}
	return table
}

// With any headers of a message on a redeliver queue, foreign ones are unchanged, and the next copy is read as the
// same.
func FuzzHeaders(f *testing.F) {
	f.Add("string redeliver-attempt=3\nstring redeliver-amqp-routing-key=orders\nstring redeliver-amqp-delivery-mode=1\nint32 tries=7")
	f.Add("int64 redeliver-attempt=3\ntable redeliver-amqp-foreign=group\nlist redeliver-due=x")
	f.Add("string redeliver-amqp-delivery-mode=300\nnull redeliver-amqp-routing-key=\nbytes CC=\xff")
	f.Add("list x-death=orders\nstring CC=a\nstring redeliver-amqp-cc=b\nuint8 x=9")
	f.Fuzz(func(t *testing.T, block string) {
		d := amqp091.Delivery{Headers: tableOf(block), DeliveryMode: amqp091.Persistent}
		ours, findings := wire.RestoreOriginal(&d)
		for _, h := range ours {
			if !strings.HasPrefix(h.Name, redeliver.HeaderPrefix) {
				t.Errorf("%q is the user's", h.Name)
			}
		}
		for _, finding := range findings {
			if len(finding.Value) > 64 {
				t.Errorf("a finding of %d bytes", len(finding.Value))
			}
		}
		st, _ := driver.ParseHeaders("orders", ours)
		r := wire.Record{Delivery: d}
		p := r.Publishing(&st)
		again := amqp091.Delivery{
			Headers: p.Headers, DeliveryMode: p.DeliveryMode, Expiration: p.Expiration, UserId: p.UserId, ReplyTo: p.ReplyTo,
		}
		if _, findings := wire.RestoreOriginal(&again); len(findings) > 0 {
			t.Errorf("a header that redeliver wrote is a finding: %v", findings)
		}
		if again.Exchange != d.Exchange || again.RoutingKey != d.RoutingKey || again.Expiration != d.Expiration || again.UserId != d.UserId || again.ReplyTo != d.ReplyTo || again.DeliveryMode != d.DeliveryMode {
			t.Errorf("%+v became %+v", d, again)
		}
		if len(d.Headers) > 0 && !sameText(d.Headers, again.Headers) {
			t.Errorf("%#v became %#v", d.Headers, again.Headers)
		}
	})
}

// sameText is reflect.DeepEqual for tables that may contain NaN.
func sameText(a, b amqp091.Table) bool {
	if len(a) != len(b) {
		return false
	}
	for name, v := range a {
		w, ok := b[name]
		if !ok || !reflect.DeepEqual(v, w) && v == v { //nolint:gocritic // false only for NaN
			return false
		}
	}
	return true
}

// The properties of a dead letter may come from an edited file.
func FuzzProperties(f *testing.F) {
	f.Add("delivery-mode=2\npriority=256\ntimestamp=2026-01-31T12:00:00Z\nheader-type/tries=int32", "tries", "7")
	f.Add("header-type/a=uint8\nheader-type/b=time.Time\nexchange=", "a", "256")
	f.Add("header-type/a=bytes\nuser-id=\xff", "a", "\xff")
	for _, kind := range []string{"bool", "int8", "int16", "int64", "uint16", "uint32", "float32", "float64", "", "chan int"} {
		f.Add("header-type/a="+kind, "a", "4294967296")
	}
	f.Fuzz(func(t *testing.T, properties, name, value string) {
		m := &deadletter.Message{Headers: []deadletter.Header{{Name: name, Value: []byte(value)}}}
		for line := range strings.SplitSeq(properties, "\n") {
			key, text, _ := strings.Cut(line, "=")
			m.Properties = append(m.Properties, deadletter.Header{Name: key, Value: []byte(text)})
		}
		r := recordFrom(m, m.Headers, nil)
		v, there := r.Headers[name]
		if there == wire.IsBrokerHeader(name) {
			t.Fatalf("header %q exists: %t", name, there)
		}
		if !there {
			return
		}
		if err := (amqp091.Table{"a": v}).Validate(); err != nil {
			t.Errorf("%q of type %T cannot be sent: %v", name, v, err)
		}
	})
}

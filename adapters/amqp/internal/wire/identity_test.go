package wire

import (
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wirename"
)

func TestIDs(t *testing.T) {
	long := strings.Repeat("i", 600)
	for name, row := range map[string]struct {
		d    amqp091.Delivery
		want string
	}{
		"uuid":          {amqp091.Delivery{Headers: amqp091.Table{wirename.WatermillUUID: "u"}, MessageId: "m"}, "u"},
		"message id":    {amqp091.Delivery{MessageId: "m"}, "m"},
		"no text":       {amqp091.Delivery{Headers: amqp091.Table{wirename.WatermillUUID: int32(1)}, MessageId: "m"}, "m"},
		"bytes":         {amqp091.Delivery{Headers: amqp091.Table{wirename.WatermillUUID: []byte("u")}, MessageId: "m"}, "m"},
		"empty":         {amqp091.Delivery{Headers: amqp091.Table{wirename.WatermillUUID: ""}, MessageId: "m"}, "m"},
		"too long":      {amqp091.Delivery{Headers: amqp091.Table{wirename.WatermillUUID: long}}, limits.ShortID(long)},
		"invalid UTF-8": {amqp091.Delivery{MessageId: "\xff"}, limits.ShortID("\xff")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IDOf(&row.d); got != row.want {
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
	want := IDOf(&first)
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
		if got := IDOf(&d); got != want {
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
		if got := IDOf(&d); got == want {
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

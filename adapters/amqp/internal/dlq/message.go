package dlq

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/scan"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	msgdriver "github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// deadRecord is a dead letter's original delivery, and where it is unsettled.
type deadRecord struct {
	mark scan.Mark
	rec  amqp091.Delivery
	raw  []byte // its headers, if the client could not read them
}

// readMessage converts a delivery for people.
func (q *Queue) readMessage(g *scan.Message) *deadletter.Message {
	d := &g.Delivery
	raw, unreadable := wire.RemoveUnreadable(d)
	// Other programs copy a producer's headers, redeliver's among them. RabbitMQ may fill our own DLQ, too.
	foreign := q.Foreign || wire.LastDeathQueue(d.Headers) == q.info.Origin
	var forged []redeliver.Finding
	if !foreign {
		forged = wire.StripUnsigned(q.Keys, statekeys.DeadLetter, d)
	}
	if kept, ok := d.Headers[wire.HeaderRaw].([]byte); ok && unreadable == nil && !foreign {
		raw, unreadable = kept, errors.New("its headers could not be read when it came")
	}
	part, _ := d.Headers[wire.HeaderPart].(string)
	at := position(d)
	deaths := deathHeaders(d.Headers)
	var ours []msgdriver.Header
	var findings []redeliver.Finding
	if foreign {
		d.Headers = maps.Clone(d.Headers)
		maps.DeleteFunc(d.Headers, func(name string, _ any) bool { return wire.IsBrokerHeader(name) })
	} else {
		ours, findings = wire.RestoreOriginal(d)
	}
	own := &deadRecord{mark: g.Mark, rec: *d, raw: raw}
	own.rec.Acknowledger = nil
	m := &deadletter.Message{
		Position: at, Time: d.Timestamp.UTC(), Body: d.Body, Properties: propertiesOf(d), Native: own,
	}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		m.Headers = append(m.Headers, deadletter.Header{Name: name, Value: wire.HeaderBytes(d.Headers[name])})
	}
	if len(ours) == 0 {
		m.Headers = append(m.Headers, deaths...) // last, because another program's come first
	}
	driver.ReadHeaders(m, q.info, ours, func() string { return wire.IDOf(d) })
	if part != "" && !foreign {
		m.Mismatch = fmt.Sprintf("it is part %s of a message whose body is too large for the broker (%s): join the bodies of the parts", part, m.State.Truncated)
	}
	m.Findings = slices.Concat(m.Findings, forged, findings)
	m.Headers = slices.DeleteFunc(m.Headers, func(h deadletter.Header) bool {
		if !wire.IsBrokerHeader(h.Name) {
			return false
		}
		m.Foreign = append(m.Foreign, h)
		return true
	})
	if unreadable != nil && m.Mismatch == "" {
		m.Mismatch = unreadable.Error() + ": a replay would be without them"
		m.Foreign = append(m.Foreign, deadletter.Header{Name: wire.HeaderRaw, Value: raw})
	}
	if !m.State.LastFailed.IsZero() { // RabbitMQ does not report when it was written
		m.Time = m.State.LastFailed
	}
	return m
}

// position derives a message's position from its content, because the broker has no name for a message. Equal
// messages share one.
func position(d *amqp091.Delivery) deadletter.Position {
	sum := sha256.Sum256([]byte(d.MessageId + "\x00" + wire.Digest(d)))
	return deadletter.Position(hex.EncodeToString(sum[:8]))
}

// deathHeaders returns RabbitMQ's headers of a message that it dead-lettered itself.
func deathHeaders(headers amqp091.Table) (found []deadletter.Header) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if name == "x-delivery-count" || name == "x-acquired-count" || !wire.IsBrokerHeader(name) {
			continue
		}
		found = append(found, deadletter.Header{Name: name, Value: wire.HeaderBytes(headers[name])})
	}
	return found
}

// recordFrom makes the record of a message with these headers. Unchanged headers keep their type.
func recordFrom(m *deadletter.Message, headers []deadletter.Header, keys statekeys.Keys) *wire.Record {
	r := &wire.Record{Keys: keys}
	var types map[string]string
	if own, ok := m.Native.(*deadRecord); ok {
		r.Delivery, r.Raw = own.rec, own.raw
	} else {
		r.Delivery, types = fromProperties(m.Properties)
	}
	was := r.Headers
	r.Headers = make(amqp091.Table, len(headers))
	for _, h := range headers {
		if wire.IsBrokerHeader(h.Name) {
			continue
		}
		v, known := was[h.Name]
		switch {
		case known && string(wire.HeaderBytes(v)) == string(h.Value) && (v == nil) == (h.Value == nil):
			r.Headers[h.Name] = v
		case h.Value == nil:
			r.Headers[h.Name] = nil
		case types[h.Name] != "":
			r.Headers[h.Name] = parseTyped(types[h.Name], h.Value)
		case utf8.Valid(h.Value):
			r.Headers[h.Name] = string(h.Value)
		default:
			r.Headers[h.Name] = h.Value
		}
	}
	r.Delivery.Body = m.Body
	return r
}

// headerType is the prefix of properties that keep the types of headers when a message passes through a file. Plain
// text has none.
const headerType = "header-type/"

// propertiesOf returns AMQP's properties beside the headers.
func propertiesOf(d *amqp091.Delivery) (all []deadletter.Header) {
	add := func(name, value string) {
		all = append(all, deadletter.Header{Name: name, Value: []byte(value)})
	}
	for _, p := range fieldsOf(d) {
		if v := reflect.ValueOf(p.value).Elem(); !v.IsZero() {
			add(p.name, string(wire.HeaderBytes(v.Interface())))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		if kind := typeOf(d.Headers[name]); kind != "" {
			add(headerType+name, kind)
		}
	}
	return all
}

// field is a property of a delivery, with its name in a file.
type field struct {
	name  string
	value any // a pointer
}

func fieldsOf(d *amqp091.Delivery) []field {
	return []field{
		{"content-type", &d.ContentType}, {"content-encoding", &d.ContentEncoding}, {"delivery-mode", &d.DeliveryMode}, {"priority", &d.Priority},
		{"correlation-id", &d.CorrelationId}, {"reply-to", &d.ReplyTo}, {"expiration", &d.Expiration}, {"message-id", &d.MessageId},
		{"timestamp", &d.Timestamp}, {"type", &d.Type}, {"user-id", &d.UserId}, {"app-id", &d.AppId}, {"exchange", &d.Exchange}, {"routing-key", &d.RoutingKey},
	}
}

// fromProperties restores a delivery, without headers, and the types of its headers from the properties.
func fromProperties(all []deadletter.Header) (d amqp091.Delivery, types map[string]string) {
	types = make(map[string]string)
	for _, p := range all {
		if name, ok := strings.CutPrefix(p.Name, headerType); ok {
			types[name] = string(p.Value)
		}
		for _, f := range fieldsOf(&d) {
			if f.name == p.Name {
				wire.ParseInto(f.value, string(p.Value))
			}
		}
	}
	d.DeliveryMode = cmp.Or(d.DeliveryMode, amqp091.Persistent)
	return d, types
}

package dlq

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/scan"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// deadRecord is a dead letter's original delivery, and where it is unsettled.
type deadRecord struct {
	scanner *scan.Scanner
	mark    scan.Mark
	rec     amqp091.Delivery
	raw     []byte // its headers, if the client could not read them
}

// readMessage converts a delivery for people.
func (q *Queue) readMessage(g *scan.Message, h *scan.Scanner) *deadletter.Message {
	d := &g.Delivery
	raw, unreadable := wire.RemoveUnreadable(d)
	// Other programs copy a producer's headers, redeliver's among them. RabbitMQ may fill our own DLQ, too.
	foreign := q.Foreign || wire.LastDeathQueue(d.Headers) == q.info.Origin
	var forged []redeliver.Finding
	if !foreign {
		forged = wire.StripUnsigned(q.Keys, d)
	}
	if kept, ok := d.Headers[wire.HeaderRaw].([]byte); ok && unreadable == nil && !foreign {
		raw, unreadable = kept, errors.New("its headers could not be read when it came")
	}
	part, _ := d.Headers[wire.HeaderPart].(string)
	at := position(d)
	deaths := deathHeaders(d.Headers)
	var ours []redeliver.Header
	var findings []redeliver.Finding
	if foreign {
		d.Headers = maps.Clone(d.Headers)
		maps.DeleteFunc(d.Headers, func(name string, _ any) bool { return wire.IsBrokerHeader(name) })
	} else {
		ours, findings = wire.RestoreOriginal(d)
	}
	own := &deadRecord{scanner: h, mark: g.Mark, rec: *d, raw: raw}
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
	deadletter.ReadHeaders(m, q.info, ours, func() string { return wire.IDOf(d) })
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
	if own, ok := m.Native.(*deadRecord); ok {
		r.Delivery, r.Raw = own.rec, own.raw
	} else {
		r.Delivery = deliveryFromProperties(m.Properties)
	}
	was, kinds := r.Headers, map[string]string(nil)
	if m.Native == nil {
		kinds = typesOf(m.Properties)
	}
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
		case kinds[h.Name] != "":
			r.Headers[h.Name] = string(h.Value)
			if v, ok := parseTyped(kinds[h.Name], h.Value); ok {
				r.Headers[h.Name] = v
			}
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
		if value != "" {
			all = append(all, deadletter.Header{Name: name, Value: []byte(value)})
		}
	}
	number := func(n uint8) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(int(n))
	}
	add("content-type", d.ContentType)
	add("content-encoding", d.ContentEncoding)
	add("delivery-mode", number(d.DeliveryMode))
	add("priority", number(d.Priority))
	add("correlation-id", d.CorrelationId)
	add("reply-to", d.ReplyTo)
	add("expiration", d.Expiration)
	add("message-id", d.MessageId)
	if !d.Timestamp.IsZero() {
		add("timestamp", d.Timestamp.UTC().Format(time.RFC3339))
	}
	add("type", d.Type)
	add("user-id", d.UserId)
	add("app-id", d.AppId)
	add("exchange", d.Exchange)
	add("routing-key", d.RoutingKey)
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		switch v := d.Headers[name].(type) {
		case string, nil, []any, amqp091.Table, amqp091.Decimal: // the last three come back as text
		case []byte:
			add(headerType+name, "bytes")
		default:
			add(headerType+name, fmt.Sprintf("%T", v))
		}
	}
	return all
}

// deliveryFromProperties restores a delivery from the properties, without headers.
func deliveryFromProperties(all []deadletter.Header) (d amqp091.Delivery) {
	texts := map[string]*string{
		"content-type": &d.ContentType, "content-encoding": &d.ContentEncoding, "correlation-id": &d.CorrelationId, "reply-to": &d.ReplyTo,
		"expiration": &d.Expiration, "message-id": &d.MessageId, "type": &d.Type, "user-id": &d.UserId, "app-id": &d.AppId,
		"exchange": &d.Exchange, "routing-key": &d.RoutingKey,
	}
	d.DeliveryMode = amqp091.Persistent
	for _, p := range all {
		value := string(p.Value)
		switch to := texts[p.Name]; {
		case to != nil:
			*to = value
		case p.Name == "delivery-mode", p.Name == "priority":
			n, err := strconv.ParseUint(value, 10, 8)
			if err == nil && p.Name == "priority" {
				d.Priority = uint8(n)
			} else if err == nil {
				d.DeliveryMode = uint8(n)
			}
		case p.Name == "timestamp":
			if at, err := time.Parse(time.RFC3339, value); err == nil {
				d.Timestamp = at
			}
		}
	}
	return d
}

// parseTyped restores the type of a header from a file.
func parseTyped(kind string, text []byte) (v any, ok bool) {
	whole := func(bits int) int64 {
		n, err := strconv.ParseInt(string(text), 10, bits)
		ok = err == nil
		return n
	}
	switch kind {
	case "bytes":
		return text, true
	case "bool":
		b, err := strconv.ParseBool(string(text))
		return b, err == nil
	case "int8":
		v = int8(whole(8))
	case "int16":
		v = int16(whole(16))
	case "int32":
		v = int32(whole(32))
	case "int64":
		v = whole(64)
	case "uint8":
		v = byte(whole(9))
	case "uint16":
		v = uint16(whole(17))
	case "uint32":
		v = uint32(whole(33))
	case "float32", "float64":
		f, err := strconv.ParseFloat(string(text), 64)
		if kind == "float32" {
			return float32(f), err == nil
		}
		return f, err == nil
	case "time.Time":
		at, err := time.Parse(time.RFC3339, string(text))
		return at, err == nil
	}
	return v, ok
}

// typesOf returns the types of headers in properties, by name.
func typesOf(all []deadletter.Header) map[string]string {
	kinds := make(map[string]string)
	for _, p := range all {
		if name, ok := strings.CutPrefix(p.Name, headerType); ok {
			kinds[name] = string(p.Value)
		}
	}
	return kinds
}

package dlq

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	msgdriver "github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// deadRecord is a dead letter's native message, as its publisher made it.
type deadRecord struct {
	rec  wire.Record
	body []byte // decoded
}

const sourceARN = "DeadLetterQueueSourceArn"

// readMessage returns a message as a dead letter. The body is the publisher's, decoded as EncodedAttribute says.
func (q *Queue) readMessage(m *types.Message) *deadletter.Message {
	source := m.Attributes[sourceARN]
	rec, ours := wire.NewRecord(m, q.info.Origin, statekeys.DeadLetter, q.Keys)
	at := deadletter.Position(rec.CopyID)
	dead := &deadletter.Message{Position: at, Time: wire.SentAt(m)}
	var headers []msgdriver.Header
	var part string
	own := rec.MessageAttributes
	if ours != nil {
		headers, part = ours.Headers, ours.Part
	} else if c := rec.ReadState(statekeys.DeadLetter); c != nil && c.Header(redeliver.HeaderGroup) != "" { // of another queue
		headers, part = c.Headers, c.Part
	}
	dead.Body = rec.PublishedBody()
	e, encoded := wire.EncodedOf(&rec.Native)
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if name == wire.EncodedAttribute && encoded || name == wire.StateAttribute && headers != nil && ours == nil { // beside redeliver's state it is the message's own
			continue
		}
		dead.Headers = append(dead.Headers, deadletter.Header{Name: name, Value: wire.AttributeBytes(own[name])})
	}
	for _, a := range e.Attributes {
		dead.Headers = append(dead.Headers, deadletter.Header{Name: a.Name, Value: a.Value})
	}
	metadata := e.AllMetadata()
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		dead.Headers = append(dead.Headers, deadletter.Header{Name: name, Value: []byte(metadata[name])})
	}
	if group := rec.Attributes[wire.GroupID]; group != "" {
		dead.Key = []byte(group)
	}
	if source != "" && headers == nil {
		dead.Headers = append(dead.Headers, deadletter.Header{Name: sourceARN, Value: []byte(source)})
	}
	driver.ReadHeaders(dead, q.info, headers, func() string { return wire.IDOf(m) })
	if part != "" {
		dead.Mismatch = fmt.Sprintf("it is part %s of a message that is too large for %s (%s): join the bodies of the parts", part, q.info.DLQ, dead.State.Truncated)
	}
	if ours != nil {
		rec.SetFirstDelivery(ours, &dead.State)
	}
	dead.Properties = propertiesOf(&rec)
	dead.Native = &deadRecord{rec: rec, body: dead.Body}
	return dead
}

// recordFrom makes the record of a message with these headers. Unchanged parts keep their encoding.
func recordFrom(m *deadletter.Message, headers []deadletter.Header) *wire.Record {
	var was wire.Record
	var body []byte
	kinds := make(map[string]string)
	if own, ok := m.Native.(*deadRecord); ok {
		was, body = own.rec, own.body
	} else {
		was = recordFromProperties(m, kinds)
	}
	rec := was
	rec.Attributes = maps.Clone(was.Attributes)
	old, _ := wire.EncodedOf(&was.Native)
	e := wire.Encoded{UUID: old.UUID}
	if m.Native != nil && bytes.Equal(body, m.Body) {
		e.Body = old.Body
	} else {
		rec.Body = aws.String(e.EncodeBody(m.Body))
	}
	typed := maps.Clone(was.MessageAttributes)
	if typed == nil {
		typed = make(map[string]types.MessageAttributeValue)
	}
	for _, a := range old.Attributes {
		typed[a.Name] = wire.Attribute(a.Type, a.Value)
	}
	encoded := old.AllMetadata()
	own := make(map[string]types.MessageAttributeValue, len(headers)+1)
	for _, h := range headers {
		v, known := typed[h.Name]
		value, meta := encoded[h.Name]
		kind := kinds[h.Name]
		switch {
		case known && bytes.Equal(wire.AttributeBytes(v), h.Value):
			own[h.Name] = v
		case meta && value == string(h.Value), h.Name == wire.EncodedAttribute, !wire.IsAttribute(wire.Displaced{Name: h.Name, Type: wire.BinaryType, Value: h.Value}):
			e.Add(h.Name, string(h.Value))
		case kind != "" && wire.IsAttribute(wire.Displaced{Name: h.Name, Type: kind, Value: h.Value}):
			own[h.Name] = wire.Attribute(kind, h.Value)
		case wire.IsValidText(string(h.Value)):
			own[h.Name] = wire.TextAttribute(string(h.Value))
		default:
			own[h.Name] = wire.Attribute(wire.BinaryType, h.Value)
		}
	}
	displace(own, &e)
	e.AddTo(own)
	rec.MessageAttributes = own
	return &rec
}

// displace moves attributes for which SQS has no room into e, never the id and the expiry, which only count as attributes.
func displace(own map[string]types.MessageAttributeValue, e *wire.Encoded) {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(own))) {
		if room := wire.MaxAttributes; len(own) < room || len(own) == room && e.IsEmpty() {
			return
		}
		if name == wire.UUIDAttribute || name == redeliver.HeaderExpires {
			continue
		}
		if kind, value := aws.ToString(own[name].DataType), wire.AttributeBytes(own[name]); kind == wire.StringType {
			e.Add(name, string(value))
		} else {
			e.Attributes = append(e.Attributes, wire.Displaced{Name: name, Type: kind, Value: value})
		}
		delete(own, name)
	}
}

// attributeType is the prefix of properties that keep the types of attributes when a message passes through a file.
// Plain text has none.
const attributeType = "attribute-type/"

// uuidProperty is a UUID that SQS does not accept as a text.
const uuidProperty = "uuid"

// propertiesOf returns what SQS keeps beside the attributes.
func propertiesOf(r *wire.Record) (all []deadletter.Header) {
	add := func(name, value string) {
		if value != "" {
			all = append(all, deadletter.Header{Name: name, Value: []byte(value)})
		}
	}
	add("message-id", r.FirstID)
	add("group-id", r.Attributes[wire.GroupID])
	add("deduplication-id", r.Attributes[wire.DedupID])
	add("trace-header", r.Attributes[wire.TraceHeader])
	add("sent", r.Attributes[wire.SentTimestamp])
	for _, name := range slices.Sorted(maps.Keys(r.MessageAttributes)) {
		if kind := aws.ToString(r.MessageAttributes[name].DataType); kind != wire.StringType {
			add(attributeType+name, kind)
		}
	}
	e, _ := wire.EncodedOf(&r.Native)
	for _, a := range e.Attributes {
		add(attributeType+a.Name, a.Type)
	}
	add(uuidProperty, string(e.UUID))
	return all
}

// recordFromProperties restores a record from the properties, without body and attributes. It stores the types of
// attributes in kinds.
func recordFromProperties(m *deadletter.Message, kinds map[string]string) wire.Record {
	r := wire.Record{CopyID: m.ID, FirstID: m.ID}
	r.Attributes = make(map[string]string)
	names := map[string]string{"group-id": wire.GroupID, "deduplication-id": wire.DedupID, "trace-header": wire.TraceHeader, "sent": wire.SentTimestamp}
	for _, p := range m.Properties {
		value := string(p.Value)
		if kind, ok := strings.CutPrefix(p.Name, attributeType); ok {
			kinds[kind] = value
		}
		if to := names[p.Name]; to != "" {
			r.Attributes[to] = value
		}
		switch p.Name {
		case "message-id":
			r.FirstID = value
			r.MessageId = aws.String(value)
		case uuidProperty:
			r.MessageAttributes = make(map[string]types.MessageAttributeValue)
			(&wire.Encoded{UUID: p.Value}).AddTo(r.MessageAttributes)
		}
	}
	if r.Attributes[wire.GroupID] == "" && m.Key != nil {
		r.Attributes[wire.GroupID] = string(m.Key)
	}
	if _, err := strconv.ParseInt(r.Attributes[wire.SentTimestamp], 10, 64); err != nil {
		delete(r.Attributes, wire.SentTimestamp)
	}
	return r
}

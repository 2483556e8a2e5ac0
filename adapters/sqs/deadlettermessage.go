package sqs

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
	"github.com/redeliver/redeliver/deadletter"
)

// deadRecord is a dead letter's native message, as its publisher made it.
type deadRecord struct {
	rec  record
	body []byte // decoded
}

const sourceARN = "DeadLetterQueueSourceArn"

// readMessage returns a message as a dead letter. The body is the publisher's, decoded as EncodedAttribute says.
func (q *deadLetters) readMessage(m *types.Message) *deadletter.Message {
	source := m.Attributes[sourceARN]
	rec, ours := newRecord(m, q.info.Origin, nil, q.client.cfg.StateKeys)
	at := deadletter.Position(rec.current)
	dead := &deadletter.Message{Position: at, Time: sentAt(m)}
	var headers []redeliver.Header
	var part string
	own := rec.MessageAttributes
	if ours != nil {
		headers, part = ours.headers, ours.part
	} else if a, ok := own[StateAttribute]; ok && a.StringValue != nil && rec.keys.verify(*a.StringValue, aws.ToString(rec.native.Body)) {
		// The state of another queue, or none of redeliver's.
		if c, ok := unpack(*a.StringValue); ok && slices.ContainsFunc(c.headers, func(h redeliver.Header) bool { return h.Name == redeliver.HeaderGroup }) {
			headers, part = c.headers, c.part
		}
	}
	dead.Body = rec.publishedBody()
	e, encoded := encodedOf(&rec.native)
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if name == EncodedAttribute && encoded || name == StateAttribute && headers != nil && ours == nil { // beside redeliver's state it is the message's own
			continue
		}
		dead.Headers = append(dead.Headers, deadletter.Header{Name: name, Value: attributeBytes(own[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(e.Metadata)) {
		dead.Headers = append(dead.Headers, deadletter.Header{Name: name, Value: []byte(e.Metadata[name])})
	}
	if group := rec.Attributes[groupID]; group != "" {
		dead.Key = []byte(group)
	}
	if source != "" && headers == nil {
		dead.Headers = append(dead.Headers, deadletter.Header{Name: sourceARN, Value: []byte(source)})
	}
	deadletter.ReadHeaders(dead, q.info, headers, func() string { return idOf(m) })
	if part != "" {
		dead.Mismatch = fmt.Sprintf("it is part %s of a message that is too large for %s (%s): join the bodies of the parts", part, q.info.DLQ, dead.State.Truncated)
	}
	if ours != nil {
		rec.setFirstDelivery(ours, &dead.State)
	}
	dead.Properties = propertiesOf(&rec)
	dead.Native = &deadRecord{rec: rec, body: dead.Body}
	return dead
}

func attributeBytes(v types.MessageAttributeValue) []byte {
	if v.StringValue != nil {
		return []byte(*v.StringValue)
	}
	return v.BinaryValue
}

// recordFrom makes the record of a message with these headers. Unchanged parts keep their encoding.
func recordFrom(m *deadletter.Message, headers []deadletter.Header) *record {
	var was record
	var body []byte
	kinds := make(map[string]string)
	if own, ok := m.Native.(*deadRecord); ok {
		was, body = own.rec, own.body
	} else {
		was = recordFromProperties(m, kinds)
	}
	rec := was
	rec.Attributes = maps.Clone(was.Attributes)
	old, _ := encodedOf(&was.native)
	e := encoded{Metadata: map[string]string{}}
	if m.Native != nil && bytes.Equal(body, m.Body) {
		e.Body = old.Body
	} else {
		rec.native.Body = aws.String(e.encodeBody(m.Body))
	}
	rec.MessageAttributes = make(map[string]types.MessageAttributeValue, len(headers)+1)
	for _, h := range headers {
		v, known := was.MessageAttributes[h.Name]
		value, meta := old.Metadata[h.Name]
		switch {
		case known && bytes.Equal(attributeBytes(v), h.Value):
			rec.MessageAttributes[h.Name] = v
		case meta && value == string(h.Value), len(h.Value) == 0, h.Name != UUIDAttribute && !isMetadataName(h.Name), len(rec.MessageAttributes) >= maxAttributes-1:
			e.Metadata[h.Name] = string(h.Value)
		case kinds[h.Name] != "":
			rec.MessageAttributes[h.Name] = displaced{Name: h.Name, Type: kinds[h.Name], Value: h.Value}.attribute()
		case isValidText(string(h.Value)):
			rec.MessageAttributes[h.Name] = textAttribute(string(h.Value))
		default:
			rec.MessageAttributes[h.Name] = displaced{Name: h.Name, Type: binaryType, Value: h.Value}.attribute()
		}
	}
	e.addTo(rec.MessageAttributes)
	return &rec
}

// attributeType is the prefix of properties that keep the types of attributes when a message passes through a file.
// Plain text has none.
const attributeType = "attribute-type/"

// propertiesOf returns what SQS keeps beside the attributes.
func propertiesOf(r *record) (all []deadletter.Header) {
	add := func(name, value string) {
		if value != "" {
			all = append(all, deadletter.Header{Name: name, Value: []byte(value)})
		}
	}
	add("message-id", r.messageID)
	add("group-id", r.Attributes[groupID])
	add("deduplication-id", r.Attributes[dedupID])
	add("trace-header", r.Attributes[traceHeader])
	add("sent", r.Attributes[sentTimestamp])
	for _, name := range slices.Sorted(maps.Keys(r.MessageAttributes)) {
		if kind := aws.ToString(r.MessageAttributes[name].DataType); kind != stringType {
			add(attributeType+name, kind)
		}
	}
	return all
}

// recordFromProperties restores a record from the properties, without body and attributes. It stores the types of
// attributes in kinds.
func recordFromProperties(m *deadletter.Message, kinds map[string]string) record {
	r := record{current: m.ID, messageID: m.ID}
	r.Attributes = make(map[string]string)
	names := map[string]string{"group-id": groupID, "deduplication-id": dedupID, "trace-header": traceHeader, "sent": sentTimestamp}
	for _, p := range m.Properties {
		value := string(p.Value)
		if kind, ok := strings.CutPrefix(p.Name, attributeType); ok {
			kinds[kind] = value
		}
		if to := names[p.Name]; to != "" {
			r.Attributes[to] = value
		}
		if p.Name == "message-id" {
			r.messageID = value
			r.MessageId = aws.String(value)
		}
	}
	if r.Attributes[groupID] == "" && m.Key != nil {
		r.Attributes[groupID] = string(m.Key)
	}
	if _, err := strconv.ParseInt(r.Attributes[sentTimestamp], 10, 64); err != nil {
		delete(r.Attributes, sentTimestamp)
	}
	return r
}

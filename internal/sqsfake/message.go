package sqsfake

import (
	"crypto/md5" //nolint:gosec // required by the protocol
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Attribute is a message attribute.
type Attribute struct {
	Type  string // String, Number or Binary, and perhaps a dot and more
	Value []byte // the text, or the bytes of a Binary
}

// String returns an attribute that is a text.
func String(v string) Attribute { return Attribute{"String", []byte(v)} }

// Message is a message in a queue.
type Message struct {
	ID         string
	Body       string
	Attributes map[string]Attribute
	Group      string // MessageGroupId
	Dedup      string // MessageDeduplicationId; empty if the body is its id
	Sequence   string // SequenceNumber
	Trace      string // AWSTraceHeader
	Source     string // the ARN of the queue from which a RedrivePolicy moved it
	Sent       time.Time
	Visible    time.Time // when it becomes visible
	Receipt    string    // the latest; empty before the first receive
	Received   time.Time // last
	First      time.Time // first received
	Receives   int
}

// isInFlight reports whether a message is received and hidden.
func (m *Message) isInFlight(now time.Time) bool { return m.Receives > 0 && m.Visible.After(now) }

// sendLocked carries out SendMessage, or an entry of its batch.
func (s *Server) sendLocked(q *queue, c *Call, e map[string]any) (map[string]any, *Refusal) {
	if _, r := c.checkMessage(e, q.number("MaximumMessageSize")); r != nil {
		return nil, r
	}
	now := time.Now()
	m := &Message{Body: text(e, "MessageBody"), Group: text(e, "MessageGroupId"), Dedup: text(e, "MessageDeduplicationId"), Sent: now, Attributes: map[string]Attribute{}}
	given, _ := e["MessageAttributes"].(map[string]any)
	for name, v := range given {
		attribute, _ := v.(map[string]any)
		m.Attributes[name], _ = parseAttribute(attribute)
	}
	system, _ := e["MessageSystemAttributes"].(map[string]any)
	trace, _ := system["AWSTraceHeader"].(map[string]any)
	m.Trace = text(trace, "StringValue")
	m.Visible = now.Add(seconds(e, "DelaySeconds", q.attributes["DelaySeconds"]))
	if refusal := s.addLocked(q, m); refusal != nil {
		return nil, refusal
	}
	out := map[string]any{"MessageId": m.ID, "MD5OfMessageBody": sum(m.Body)}
	if len(m.Attributes) > 0 {
		out["MD5OfMessageAttributes"] = attributesSum(m.Attributes)
	}
	if q.fifo {
		out["SequenceNumber"] = m.Sequence
	}
	return out, nil
}

// addLocked adds a message to a queue, unless a FIFO queue takes it for a duplicate. A duplicate gets the id of the first.
func (s *Server) addLocked(q *queue, m *Message) *Refusal {
	if !q.fifo {
		m.ID = s.nextLocked("id-")
	} else {
		key, refusal := q.dedupKey(m)
		if refusal != nil {
			return refusal
		}
		if known := q.dedup[key]; m.Sent.Before(known.until) {
			m.ID, m.Sequence = known.id, known.sequence
			return nil
		}
		m.ID = s.nextLocked("id-")
		m.Sequence = fmt.Sprintf("%020d", uint64(1)<<63+uint64(s.seq)<<8) // 20 digits, and not consecutive
		q.dedup[key] = deduplication{m.ID, m.Sequence, m.Sent.Add(dedupTime)}
	}
	q.messages = append(q.messages, m)
	q.wake()
	return nil
}

// dedupKey returns what two messages have in common of which one is a duplicate.
func (q *queue) dedupKey(m *Message) (string, *Refusal) {
	key := m.Dedup
	switch {
	case key != "":
	case q.attributes["ContentBasedDeduplication"] == "true":
		digest := sha256.Sum256([]byte(m.Body))
		key = hex.EncodeToString(digest[:])
	default:
		return "", refuse("InvalidParameterValue", "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
	}
	if q.attributes["DeduplicationScope"] == "messageGroup" {
		key = m.Group + " " + key
	}
	return key, nil
}

// toReceived returns a message in the form of an answer, with the attributes that the request asks for.
func (m *Message) toReceived(in map[string]any) map[string]any {
	out := map[string]any{"MessageId": m.ID, "ReceiptHandle": m.Receipt, "Body": m.Body, "MD5OfBody": sum(m.Body)}
	system := map[string]string{
		"ApproximateReceiveCount": strconv.Itoa(m.Receives), "SentTimestamp": strconv.FormatInt(m.Sent.UnixMilli(), 10), "SenderId": "AIDAEXAMPLE",
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(m.First.UnixMilli(), 10),
	}
	for name, v := range map[string]string{
		"MessageGroupId": m.Group, "MessageDeduplicationId": m.Dedup, "SequenceNumber": m.Sequence, "AWSTraceHeader": m.Trace, "DeadLetterQueueSourceArn": m.Source,
	} {
		if v != "" {
			system[name] = v
		}
	}
	asked := append(texts(in, "MessageSystemAttributeNames"), texts(in, "AttributeNames")...)
	maps.DeleteFunc(system, func(name, _ string) bool { return !slices.Contains(asked, "All") && !slices.Contains(asked, name) })
	if len(system) > 0 {
		out["Attributes"] = system
	}
	attributes, names := map[string]Attribute{}, texts(in, "MessageAttributeNames")
	for name, a := range m.Attributes {
		if slices.ContainsFunc(names, func(pattern string) bool { return attributeMatches(name, pattern) }) {
			attributes[name] = a
		}
	}
	if len(attributes) > 0 {
		encoded := map[string]any{}
		for name, a := range attributes {
			encoded[name] = a.encode()
		}
		out["MessageAttributes"], out["MD5OfMessageAttributes"] = encoded, attributesSum(attributes)
	}
	return out
}

// attributeMatches reports whether a receive asks for an attribute: by its name, by a prefix and .*, or for all.
func attributeMatches(name, pattern string) bool {
	prefix, isPrefix := strings.CutSuffix(pattern, ".*")
	return pattern == "All" || pattern == name || isPrefix && strings.HasPrefix(name, prefix)
}

// encode returns an attribute in the form of the protocol.
func (a Attribute) encode() map[string]string {
	if strings.HasPrefix(a.Type, "Binary") {
		return map[string]string{"DataType": a.Type, "BinaryValue": base64.StdEncoding.EncodeToString(a.Value)}
	}
	return map[string]string{"DataType": a.Type, "StringValue": string(a.Value)}
}

func sum(s string) string {
	h := md5.Sum([]byte(s)) //nolint:gosec // required by the protocol
	return hex.EncodeToString(h[:])
}

// attributesSum returns the digest of attributes that AWS documents, which SDKs check.
func attributesSum(attributes map[string]Attribute) string {
	var all []byte
	add := func(part []byte) {
		all = binary.BigEndian.AppendUint32(all, uint32(len(part))) // at most 1 MiB
		all = append(all, part...)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		add([]byte(name))
		add([]byte(a.Type))
		if strings.HasPrefix(a.Type, "Binary") {
			all = append(all, 2)
		} else {
			all = append(all, 1)
		}
		add(a.Value)
	}
	return sum(string(all))
}

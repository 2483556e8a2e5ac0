package sqs

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// StateAttribute is the one message attribute in which redeliver's state travels:
// a JSON object with the fields of redeliver's headers, without their prefix, all
// of them texts. It has these further fields:
//
//	message-id        the MessageId of the first delivery, if it is not the id
//	deduplication-id  the message's own, if the copy has one of redeliver's (FIFO)
//	part              for a dead letter whose body is too large for the DLQ: the
//	                  number of this part and of all parts, 2/3
//	copies            how often the message was rewritten because it had come back often
//	attributes        the message's attributes without room among SQS's ten: a list
//	                  of name, type and value, in base64
//	mac               signs the rest if there are Config.StateKeys; the last field
//
// It is believed only if group and origin are the queue that it is read from, and,
// if there are keys, only with a valid mac. Any other attribute of that name is the
// message's own.
const StateAttribute = "redeliver"

const (
	stringType = "String"
	binaryType = "Binary"

	keyMessageID  = "message-id"
	keyDedupID    = "deduplication-id"
	keyAttributes = "attributes"
	keyCopies     = "copies"
	keyPart       = "part"
)

// carried is the content of StateAttribute.
type carried struct {
	headers    []redeliver.Header // redeliver's headers by their full names
	messageID  string
	dedupID    string
	copies     int
	part       string
	attributes []displaced
}

// displaced is an attribute of the message that travels inside StateAttribute.
type displaced struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value []byte `json:"value"`
}

// pack returns the attribute's value. It is valid for SQS and deterministic.
func (c *carried) pack() string {
	fields := make(map[string]any, len(c.headers)+5)
	put := func(name, value string) {
		if value != "" {
			fields[name] = value
		}
	}
	for _, h := range c.headers {
		put(strings.TrimPrefix(h.Name, redeliver.HeaderPrefix), h.Value)
	}
	put(keyMessageID, c.messageID)
	put(keyDedupID, c.dedupID)
	put(keyPart, c.part)
	if c.copies > 0 {
		put(keyCopies, strconv.Itoa(c.copies))
	}
	if len(c.attributes) > 0 {
		fields[keyAttributes] = c.attributes
	}
	return jsonText(fields)
}

// notAccepted escapes the characters that JSON allows and SQS does not.
var notAccepted = strings.NewReplacer("\ufffe", `\ufffe`, "\uffff", `\uffff`)

// jsonText returns an object as JSON that SQS accepts, with its fields in order. Invalid UTF-8 becomes U+FFFD.
func jsonText(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // texts and bytes never fail
	}
	return notAccepted.Replace(strings.TrimSuffix(b.String(), "\n"))
}

// isAttribute reports whether SQS accepts an attribute of this name, type and value.
func isAttribute(d displaced) bool {
	kind, _, _ := strings.Cut(d.Type, ".")
	return isAttributeName(d.Name) && len(d.Type) <= 256 && (kind == "String" || kind == "Number" || kind == "Binary") &&
		len(d.Value) > 0 && (kind == "Binary" || isValidText(string(d.Value)))
}

// isAttributeName reports whether SQS accepts a name for an attribute.
func isAttributeName(name string) bool {
	if name == "" || len(name) > 256 {
		return false
	}
	for _, r := range name {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.') {
			return false
		}
	}
	lower := strings.ToLower(name)
	return !strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.") &&
		name[0] != '.' && name[len(name)-1] != '.' && !strings.Contains(name, "..")
}

// unpack reads the attribute's value, except unknown fields and those that are not text. ok is false if the value is
// not a state.
func unpack(value string) (c carried, ok bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(value), &fields) != nil || fields == nil {
		return c, false
	}
	for _, name := range redeliver.HeaderNames() {
		if s, is := fieldText(fields[strings.TrimPrefix(name, redeliver.HeaderPrefix)]); is {
			c.headers = append(c.headers, redeliver.Header{Name: name, Value: s})
		}
	}
	c.messageID, _ = fieldText(fields[keyMessageID])
	c.dedupID, _ = fieldText(fields[keyDedupID])
	c.part, _ = fieldText(fields[keyPart])
	if text, is := fieldText(fields[keyCopies]); is {
		if n, err := strconv.Atoi(text); err == nil && n > 0 {
			c.copies = min(n, maxCopies)
		}
	}
	var list []displaced
	if json.Unmarshal(fields[keyAttributes], &list) == nil {
		for _, a := range list {
			if !isAttribute(a) { // SQS never delivers such an attribute: the state is forged, and no copy with it could be written
				return c, false
			}
			c.attributes = append(c.attributes, a)
		}
	}
	return c, true
}

// fieldText returns the text of a field: a string, or a number or boolean as it is written.
func fieldText(raw json.RawMessage) (text string, ok bool) {
	if len(raw) == 0 {
		return "", false
	}
	if raw[0] == '"' {
		return text, json.Unmarshal(raw, &text) == nil
	}
	if raw[0] == '{' || raw[0] == '[' || string(raw) == "null" {
		return "", false
	}
	return string(raw), true
}

// isFor reports whether the state was written for a queue.
func (c *carried) isFor(queue string) bool {
	var group, origin bool
	for _, h := range c.headers {
		group = group || h.Name == redeliver.HeaderGroup && h.Value == queue
		origin = origin || h.Name == redeliver.HeaderOrigin && h.Value == queue
	}
	return group && origin
}

// detachState removes redeliver's state from a message that was read from queue, and restores the attributes inside
// it. It returns nil if there is no trusted state.
func detachState(m *types.Message, queue string, keys stateKeys) *carried {
	a, ok := m.MessageAttributes[StateAttribute]
	if !ok || a.StringValue == nil || !keys.verify(*a.StringValue, aws.ToString(m.Body)) {
		return nil
	}
	c, ok := unpack(*a.StringValue)
	if !ok || !c.isFor(queue) {
		return nil
	}
	c.detach(m)
	return &c
}

// detach removes the state from a message and restores the attributes that travelled inside it.
func (c *carried) detach(m *types.Message) {
	delete(m.MessageAttributes, StateAttribute)
	for _, d := range c.attributes {
		m.MessageAttributes[d.Name] = d.attribute()
	}
	if len(m.MessageAttributes) == 0 {
		m.MessageAttributes = nil
	}
}

func (d displaced) attribute() types.MessageAttributeValue {
	v := types.MessageAttributeValue{DataType: aws.String(d.Type)}
	if isBinary(d.Type) {
		v.BinaryValue = d.Value
	} else {
		v.StringValue = aws.String(string(d.Value))
	}
	return v
}

func displace(name string, v types.MessageAttributeValue) displaced {
	return displaced{Name: name, Type: aws.ToString(v.DataType), Value: attributeBytes(v)}
}

// isBinary reports whether values of a type are bytes. It may be a custom type, such as "Binary.png".
func isBinary(dataType string) bool {
	return dataType == binaryType || strings.HasPrefix(dataType, binaryType+".")
}

// isValidText reports whether SQS accepts a text.
func isValidText(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff {
			return false
		}
	}
	return true
}

// keyMAC is the last field of a signed state.
const keyMAC = "mac"

// stateKeys sign the state in StateAttribute.
type stateKeys statekeys.Keys

// macSize is the length of ,"mac":"..." in a signed state.
var macSize = len(macField("")) + statekeys.Size

func macField(signature string) string { return `,"` + keyMAC + `":"` + signature + `"` }

// size returns the length that a signature adds to a state.
func (k stateKeys) size() int {
	if len(k) == 0 {
		return 0
	}
	return macSize
}

// sign adds the field mac to a packed state.
func (k stateKeys) sign(packed, body string) string {
	if len(k) == 0 {
		return packed
	}
	fields := strings.TrimSuffix(packed, "}")
	return fields + macField(statekeys.Keys(k).Sign(fields, []byte(body))) + "}"
}

// verify reports whether a state was signed with one of the keys for a message with
// this body.
func (k stateKeys) verify(signed, body string) bool {
	if len(k) == 0 {
		return true
	}
	rest, ok := strings.CutSuffix(signed, "}")
	if !ok || len(rest) < macSize {
		return false
	}
	fields, mac := rest[:len(rest)-macSize], rest[len(rest)-macSize:]
	signature, ok := strings.CutPrefix(strings.TrimSuffix(mac, `"`), strings.TrimSuffix(macField(""), `"`))
	return ok && statekeys.Keys(k).Verify(signature, fields, []byte(body))
}

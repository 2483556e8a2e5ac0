package wire

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// StateAttribute is the name of the message attribute that has redeliver's state.
const StateAttribute = "redeliver"

// The fields of the state beside redeliver's headers.
const (
	keyMessageID  = "message-id"
	keyDedupID    = "deduplication-id"
	keyAttributes = "attributes"
	keyCopies     = "copies"
	keyPart       = "part"
)

// Carried is the content of StateAttribute.
type Carried struct {
	Headers    []driver.Header // redeliver's headers by their full names
	MessageID  string          // of the first delivery, if it is not the id
	Part       string          // of a body that is too large for the DLQ, such as 2/3
	Attributes []Displaced
	dedupID    string
	copies     int
}

// Displaced is an attribute of the message that travels inside StateAttribute.
type Displaced struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value []byte `json:"value"`
}

// Pack returns the attribute's value. It is valid for SQS and deterministic.
func (c *Carried) Pack() string {
	fields := make(map[string]any, len(c.Headers)+5)
	put := func(name, value string) {
		if value != "" {
			fields[name] = value
		}
	}
	for _, h := range c.Headers {
		put(strings.TrimPrefix(h.Name, redeliver.HeaderPrefix), h.Value)
	}
	put(keyMessageID, c.MessageID)
	put(keyDedupID, c.dedupID)
	put(keyPart, c.Part)
	if c.copies > 0 {
		put(keyCopies, strconv.Itoa(c.copies))
	}
	if len(c.Attributes) > 0 {
		fields[keyAttributes] = c.Attributes
	}
	return jsonText(fields)
}

// Unpack reads the attribute's value, except unknown fields and those that are not text. ok is false if the value is
// not a state.
func Unpack(value string) (c Carried, ok bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(value), &fields) != nil || fields == nil {
		return c, false
	}
	text := func(name string) (s string) {
		if json.Unmarshal(fields[name], &s) != nil {
			return ""
		}
		return s
	}
	for _, name := range driver.HeaderNames() {
		if s := text(strings.TrimPrefix(name, redeliver.HeaderPrefix)); s != "" {
			c.Headers = append(c.Headers, driver.Header{Name: name, Value: s})
		}
	}
	c.MessageID, c.dedupID, c.Part = text(keyMessageID), text(keyDedupID), text(keyPart)
	if n, err := strconv.Atoi(text(keyCopies)); err == nil && n > 0 {
		c.copies = n
	}
	var list []Displaced
	if json.Unmarshal(fields[keyAttributes], &list) == nil {
		for _, a := range list {
			if !IsAttribute(a) { // SQS never delivers such an attribute: the state is forged, and no copy with it could be written
				return c, false
			}
			c.Attributes = append(c.Attributes, a)
		}
	}
	return c, true
}

// Header returns the value of one of redeliver's headers, or "".
func (c *Carried) Header(name string) string {
	for _, h := range c.Headers {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}

// isFor reports whether the state was written for a queue.
func (c *Carried) isFor(queue string) bool {
	return c.Header(redeliver.HeaderGroup) == queue && c.Header(redeliver.HeaderOrigin) == queue
}

// ReadState returns the state of a message in a place, of any queue, or nil if it has none that the keys allow.
func (r *Record) ReadState(at statekeys.Place) *Carried {
	a, ok := r.MessageAttributes[StateAttribute]
	if !ok || a.StringValue == nil || !r.Keys.verify(at, *a.StringValue, aws.ToString(r.Body)) {
		return nil
	}
	c, ok := Unpack(*a.StringValue)
	if !ok {
		return nil
	}
	return &c
}

// detach removes the state from a message and restores the attributes that travelled inside it.
func (c *Carried) detach(m *types.Message) {
	delete(m.MessageAttributes, StateAttribute)
	for _, d := range c.Attributes {
		m.MessageAttributes[d.Name] = Attribute(d.Type, d.Value)
	}
	if len(m.MessageAttributes) == 0 {
		m.MessageAttributes = nil
	}
}

// Keys sign the state: its last field is then "mac". Without keys, nothing is signed and everything verifies.
type Keys statekeys.Keys

const macStart = `,"mac":"`

// size returns the length that a signature adds to a state.
func (k Keys) size() int {
	if len(k) == 0 {
		return 0
	}
	return len(macStart) + statekeys.Size + len(`"`)
}

// Sign adds the signature for a place to a packed state.
func (k Keys) Sign(at statekeys.Place, packed, body string) string {
	if len(k) == 0 {
		return packed
	}
	fields := strings.TrimSuffix(packed, "}")
	return fields + macStart + statekeys.Keys(k).Sign(at, fields, []byte(body)) + `"}`
}

// verify reports whether a state was signed with one of the keys for a message with this body in a place.
func (k Keys) verify(at statekeys.Place, signed, body string) bool {
	if len(k) == 0 {
		return true
	}
	start := strings.LastIndex(signed, macStart)
	if start < 0 {
		return false
	}
	signature, ok := strings.CutSuffix(signed[start+len(macStart):], `"}`)
	return ok && statekeys.Keys(k).Verify(signature, at, signed[:start], []byte(body))
}

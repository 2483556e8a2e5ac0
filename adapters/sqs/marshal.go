package sqs

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/wirename"
)

const (
	// UUIDAttribute carries a Watermill message's UUID, as in watermill-aws.
	UUIDAttribute = wirename.WatermillUUID
	// EncodedAttribute describes the parts that DefaultMarshaler encoded because SQS refuses them. It
	// is a JSON object with
	//
	//	body      "base64", or "empty" for an empty body, which is written as one space
	//	metadata  the entries without an attribute: an empty value, a name or a
	//	          character that SQS refuses, more than nine entries
	EncodedAttribute = "_redeliver_encoded"
)

// Marshaler turns SQS messages into Watermill messages and back. It must be safe
// for concurrent use.
type Marshaler interface {
	// Unmarshal makes the message that the handler gets. m must not be changed.
	// An error (or a panic) sends the message as it is to the DLQ, undecodable.
	Unmarshal(m *types.Message) (*message.Message, error)
	// Marshal makes the body and the message attributes of a message for publishing.
	Marshal(topic string, msg *message.Message) (body string, attributes map[string]types.MessageAttributeValue, err error)
}

// DefaultMarshaler uses watermill-aws's format: the UUID is an attribute, each metadata entry is an
// attribute of type String, and the payload is the body. EncodedAttribute has everything that SQS
// does not accept as it is. If a message has no UUID, its MessageId is the UUID. The metadata has
// attributes of other types as text; MessageFromContext shows them all as they are.
type DefaultMarshaler struct{}

// encoded is the content of EncodedAttribute.
type encoded struct {
	Body     string            `json:"body,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Unmarshal implements [Marshaler].
func (DefaultMarshaler) Unmarshal(m *types.Message) (*message.Message, error) {
	e, ok := encodedOf(m)
	payload, err := e.decodeBody(aws.ToString(m.Body))
	if err != nil {
		return nil, err
	}
	uuid, named := uuidOf(m)
	if !named {
		uuid = aws.ToString(m.MessageId)
	}
	msg := message.NewMessage(uuid, payload)
	maps.Copy(msg.Metadata, e.Metadata)
	for name, v := range m.MessageAttributes {
		switch {
		case name == UUIDAttribute && named, name == EncodedAttribute && ok:
		case v.StringValue != nil:
			msg.Metadata[name] = *v.StringValue
		case v.BinaryValue != nil:
			msg.Metadata[name] = string(v.BinaryValue)
		}
	}
	return msg, nil
}

// encodedOf reads EncodedAttribute. ok is false if another program wrote it.
func encodedOf(m *types.Message) (e encoded, ok bool) {
	a, there := m.MessageAttributes[EncodedAttribute]
	if !there || a.StringValue == nil || json.Unmarshal([]byte(*a.StringValue), &e) != nil {
		return encoded{}, false
	}
	return e, true
}

// Marshal implements [Marshaler].
func (DefaultMarshaler) Marshal(_ string, msg *message.Message) (string, map[string]types.MessageAttributeValue, error) {
	attributes := map[string]types.MessageAttributeValue{}
	if msg.UUID != "" && isValidText(msg.UUID) {
		attributes[UUIDAttribute] = textAttribute(msg.UUID)
	}
	e := encoded{Metadata: map[string]string{}}
	body := e.encodeBody(msg.Payload)
	names := slices.Sorted(maps.Keys(msg.Metadata))
	var plain []string
	for _, name := range names {
		switch v := msg.Metadata[name]; {
		case name == redeliver.HeaderExpires && v != "" && isValidText(v): // first, because it only counts in an attribute of its own
			plain = append([]string{name}, plain...)
		case v != "" && isValidText(v) && isMetadataName(name):
			plain = append(plain, name)
		default:
			e.Metadata[name] = v
		}
	}
	room := maxAttributes - len(attributes)
	if len(plain) > room || len(e.Metadata) > 0 || e.Body != "" {
		room--
	}
	for i, name := range plain {
		if i < room {
			attributes[name] = textAttribute(msg.Metadata[name])
		} else {
			e.Metadata[name] = msg.Metadata[name]
		}
	}
	e.addTo(attributes)
	return body, attributes, nil
}

// encodeBody returns a body as SQS accepts it.
func (e *encoded) encodeBody(body []byte) string {
	switch text := string(body); {
	case text == "":
		e.Body = "empty"
		return " "
	case !isValidText(text):
		e.Body = "base64"
		return base64.StdEncoding.EncodeToString(body)
	default:
		e.Body = ""
		return text
	}
}

// decodeBody undoes encodeBody.
func (e *encoded) decodeBody(text string) ([]byte, error) {
	switch e.Body {
	case "":
		return []byte(text), nil
	case "empty":
		return []byte{}, nil
	case "base64":
		body, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("the body is said to be base64 by the attribute %s: %w", EncodedAttribute, err)
		}
		return body, nil
	default:
		return nil, fmt.Errorf("the attribute %s says that the body is %.40q, which is unknown", EncodedAttribute, e.Body)
	}
}

// addTo adds EncodedAttribute if anything is encoded.
func (e *encoded) addTo(attributes map[string]types.MessageAttributeValue) {
	if len(e.Metadata) > 0 || e.Body != "" {
		attributes[EncodedAttribute] = textAttribute(jsonText(e))
	}
}

// isMetadataName reports whether SQS accepts a name for an attribute and redeliver does not use it.
func isMetadataName(name string) bool {
	return isAttributeName(name) && name != UUIDAttribute && name != EncodedAttribute && name != StateAttribute
}

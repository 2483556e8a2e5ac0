package sqs

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
)

// The attributes that [DefaultMarshaler] and redeliver write.
const (
	// UUIDAttribute carries a Watermill message's UUID, as in watermill-aws.
	UUIDAttribute = wire.UUIDAttribute
	// EncodedAttribute describes the parts that DefaultMarshaler encoded because SQS refuses them. It
	// is a JSON object with
	//
	//	body        "base64", or "empty" for an empty body, which is written as one space
	//	metadata    the entries without an attribute: an empty value, a name or a
	//	            character that SQS refuses, more than nine entries
	//	bytes       those of them that are not UTF-8: a list of pairs of name and value,
	//	            in base64
	//	uuid        a UUID that SQS refuses, in base64
	//	attributes  those of other types that an import had no room for: a list of
	//	            name, type and value, in base64
	EncodedAttribute = wire.EncodedAttribute
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
	StateAttribute = wire.StateAttribute
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

// Unmarshal implements [Marshaler].
func (DefaultMarshaler) Unmarshal(m *types.Message) (*message.Message, error) {
	e, ok := wire.EncodedOf(m)
	payload, err := e.DecodeBody(aws.ToString(m.Body))
	if err != nil {
		return nil, err
	}
	uuid, named := wire.UUIDOf(m)
	if !named {
		uuid = cmp.Or(string(e.UUID), aws.ToString(m.MessageId))
	}
	msg := message.NewMessage(uuid, payload)
	maps.Copy(msg.Metadata, e.AllMetadata())
	for _, a := range e.Attributes {
		msg.Metadata[a.Name] = string(a.Value)
	}
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

// Marshal implements [Marshaler].
func (DefaultMarshaler) Marshal(_ string, msg *message.Message) (string, map[string]types.MessageAttributeValue, error) {
	attributes := map[string]types.MessageAttributeValue{}
	var e wire.Encoded
	switch {
	case msg.UUID == "":
	case wire.IsValidText(msg.UUID):
		attributes[UUIDAttribute] = wire.TextAttribute(msg.UUID)
	default:
		e.UUID = []byte(msg.UUID)
	}
	body := e.EncodeBody(msg.Payload)
	names := slices.Sorted(maps.Keys(msg.Metadata))
	var plain []string
	for _, name := range names {
		switch v := msg.Metadata[name]; {
		case name == redeliver.HeaderExpires && v != "" && wire.IsValidText(v): // first, because it only counts in an attribute of its own
			plain = append([]string{name}, plain...)
		case v != "" && wire.IsValidText(v) && wire.IsMetadataName(name):
			plain = append(plain, name)
		default:
			e.Add(name, v)
		}
	}
	room := wire.MaxAttributes - len(attributes)
	if len(plain) > room || !e.IsEmpty() {
		room--
	}
	for i, name := range plain {
		if i < room {
			attributes[name] = wire.TextAttribute(msg.Metadata[name])
		} else {
			e.Add(name, msg.Metadata[name])
		}
	}
	e.AddTo(attributes)
	return body, attributes, nil
}

package amqp

import (
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/internal/wirename"
)

// UUIDHeader carries a Watermill message's UUID, as in watermill-amqp.
const UUIDHeader = wirename.WatermillUUID

// Marshaler turns deliveries into Watermill messages and back. It must be safe
// for concurrent use.
type Marshaler interface {
	// Unmarshal makes the message that the handler gets. The delivery must not
	// be changed, and the message must not share its bytes. An error (or a
	// panic) sends the delivery as it is to the DLQ, undecodable.
	Unmarshal(d *amqp091.Delivery) (*message.Message, error)
	// Marshal makes the publishing of a message.
	Marshal(topic string, msg *message.Message) (amqp091.Publishing, error)
}

// DefaultMarshaler uses watermill-amqp's format: the UUID is a header, each metadata entry is a
// header, and the payload is the body. Messages are persistent. If a delivery has no UUID, its
// message id is the UUID, or else a hash of the delivery. The metadata has headers that are not
// text as text if they are numbers, booleans or times; DeliveryFromContext shows them all as they
// are.
type DefaultMarshaler struct{}

// Unmarshal implements [Marshaler].
func (DefaultMarshaler) Unmarshal(d *amqp091.Delivery) (*message.Message, error) {
	// A copy, so that a handler that changes its payload does not change the retry.
	msg := message.NewMessage(wire.IDOf(d), slices.Clone(d.Body))
	for name, v := range d.Headers {
		if name == UUIDHeader {
			if uuid, ok := v.(string); ok && uuid != "" {
				msg.UUID = uuid
			}
			continue
		}
		if text, ok := wire.TextOf(v); ok {
			msg.Metadata[name] = text
		}
	}
	return msg, nil
}

// Marshal implements [Marshaler].
func (DefaultMarshaler) Marshal(_ string, msg *message.Message) (amqp091.Publishing, error) {
	headers := make(amqp091.Table, len(msg.Metadata)+1)
	for k, v := range msg.Metadata {
		headers[k] = v
	}
	headers[UUIDHeader] = msg.UUID
	return amqp091.Publishing{Headers: headers, DeliveryMode: amqp091.Persistent, Body: msg.Payload}, nil
}

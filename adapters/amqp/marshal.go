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
// message id is the UUID, or else a hash of the delivery. Bytes, numbers, booleans and times
// are text in the metadata; tables and arrays are left out. DeliveryFromContext shows all headers
// as they are.
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

// HeaderText returns a header's value as text: text and bytes unchanged, numbers, booleans and decimals in decimal, times as RFC 3339
// (as Unix seconds outside the years 0 to 9999), tables and arrays as JSON, and nothing for null.
func HeaderText(v any) string { return string(wire.HeaderBytes(v)) }

// These headers replace properties and headers that, if republished, would end the wait early or delay the wait of
// others, close the channel, or send the message elsewhere too.
const (
	HeaderExchange     = wire.HeaderExchange
	HeaderRoutingKey   = wire.HeaderRoutingKey
	HeaderExpiration   = wire.HeaderExpiration
	HeaderPriority     = wire.HeaderPriority
	HeaderUserID       = wire.HeaderUserID
	HeaderCC           = wire.HeaderCC
	HeaderBCC          = wire.HeaderBCC          // only of delayed publishes: the broker removes BCC
	HeaderReplyTo      = wire.HeaderReplyTo      // only the literal amq.rabbitmq.reply-to
	HeaderDeliveryMode = wire.HeaderDeliveryMode // only of messages that are not persistent
	// HeaderForeign is a table of the message's own headers that have the names of redeliver's: a
	// service copied them.
	HeaderForeign = wire.HeaderForeign
	// HeaderRaw has, in the DLQ and if there is room, all headers of a message as AMQP encodes them,
	// if the client could not read them.
	HeaderRaw = wire.HeaderRaw
	// HeaderUntil is when a message leaves the level on which it waits, if that is before it is
	// due.
	HeaderUntil = wire.HeaderUntil
	// HeaderMAC signs redeliver's other headers and the body if there are Config.StateKeys.
	HeaderMAC = wire.HeaderMAC
)

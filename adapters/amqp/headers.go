package amqp

import "github.com/redeliver/redeliver/adapters/amqp/internal/wire"

// The headers that replace properties and headers which must not be republished. They would end the wait early, close
// the channel, or send the message elsewhere too.
const (
	HeaderExchange     = wire.HeaderExchange
	HeaderRoutingKey   = wire.HeaderRoutingKey
	HeaderExpiration   = wire.HeaderExpiration
	HeaderUserID       = wire.HeaderUserID
	HeaderCC           = wire.HeaderCC
	HeaderBCC          = wire.HeaderBCC          // only of delayed publishes: the broker delivers none
	HeaderReplyTo      = wire.HeaderReplyTo      // only the literal amq.rabbitmq.reply-to
	HeaderDeliveryMode = wire.HeaderDeliveryMode // only of messages that are not persistent
	// HeaderForeign is a table of the message's own headers that have the names of redeliver's: a
	// service copied them.
	HeaderForeign = wire.HeaderForeign
	// HeaderRaw is, in the DLQ, the whole table of headers of a message whose headers the client
	// could not read, as AMQP encodes it, if there is room.
	HeaderRaw = wire.HeaderRaw
	// HeaderUntil is when a message leaves the level on which it waits, if that is before it is
	// due.
	HeaderUntil = wire.HeaderUntil
	// HeaderMAC signs redeliver's other headers and the body if there are Config.StateKeys.
	HeaderMAC = wire.HeaderMAC
)

package publish

import (
	"context"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp"
)

// extra is what a broker has besides headers, and Watermill's message does not.
type extra struct{ contentType, messageGroup string }

type extraKey struct{}

func setExtra(msg *message.Message, e extra) {
	msg.SetContext(context.WithValue(msg.Context(), extraKey{}, e))
}

func extraOf(msg *message.Message) extra {
	e, _ := msg.Context().Value(extraKey{}).(extra)
	return e
}

// RabbitMQ is the marshaler of clients of RabbitMQ. Its messages have a message-id and a content type.
type RabbitMQ struct{ amqp.DefaultMarshaler }

// Marshal implements [amqp.Marshaler].
func (m RabbitMQ) Marshal(topic string, msg *message.Message) (amqp091.Publishing, error) {
	p, err := m.DefaultMarshaler.Marshal(topic, msg)
	p.MessageId, p.ContentType = msg.UUID, extraOf(msg).contentType
	return p, err
}

// MessageGroup returns the message group of SQS: the key, or the name of a FIFO queue, which needs one.
func MessageGroup(topic string, msg *message.Message) string {
	if group := extraOf(msg).messageGroup; group != "" || !strings.HasSuffix(topic, ".fifo") {
		return group
	}
	return topic[strings.LastIndexAny(topic, "/:")+1:]
}

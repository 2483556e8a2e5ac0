package link

import (
	"strconv"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// ConsumerTag is the tag of a channel's first consumer.
const ConsumerTag = "redeliver"

// StartConsumer starts a consumer.
func StartConsumer(ch *amqp091.Channel, queue, tag string, prefetch int) (<-chan amqp091.Delivery, error) {
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	return ch.Consume(queue, tag, false, false, false, false, nil)
}

// ConsumerTagOf returns the tag of a channel's nth consumer, from 0.
func ConsumerTagOf(n int) string {
	if n == 0 {
		return ConsumerTag
	}
	return ConsumerTag + "-" + strconv.Itoa(n)
}

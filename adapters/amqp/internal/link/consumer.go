package link

import (
	"strconv"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// ConsumerTag is the tag of a channel's first consumer.
const ConsumerTag = "redeliver"

// StartConsumer starts the nth consumer of a channel.
func StartConsumer(ch *amqp091.Channel, queue string, n, prefetch int) (<-chan amqp091.Delivery, error) {
	return StartConsumerWith(ch, queue, n, prefetch, nil)
}

// StartConsumerWith is StartConsumer with arguments of the consumer.
func StartConsumerWith(ch *amqp091.Channel, queue string, n, prefetch int, args amqp091.Table) (<-chan amqp091.Delivery, error) {
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	return ch.Consume(queue, ConsumerTagOf(n), false, false, false, false, args)
}

// ConsumerTagOf returns the tag of a channel's nth consumer, from 0.
func ConsumerTagOf(n int) string {
	if n == 0 {
		return ConsumerTag
	}
	return ConsumerTag + "-" + strconv.Itoa(n)
}

package amqp

import (
	"strconv"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// consumerTag is the tag of a channel's first consumer.
const consumerTag = "redeliver"

// startConsumer starts the nth consumer of a channel.
func startConsumer(ch *amqp091.Channel, queue string, n, prefetch int) (<-chan amqp091.Delivery, error) {
	return startConsumerWith(ch, queue, n, prefetch, nil)
}

// startConsumerWith is startConsumer with arguments of the consumer.
func startConsumerWith(ch *amqp091.Channel, queue string, n, prefetch int, args amqp091.Table) (<-chan amqp091.Delivery, error) {
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	return ch.Consume(queue, consumerTagOf(n), false, false, false, false, args)
}

// consumerTagOf returns the tag of a channel's nth consumer, from 0.
func consumerTagOf(n int) string {
	if n == 0 {
		return consumerTag
	}
	return consumerTag + "-" + strconv.Itoa(n)
}

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

// StopConsumer ends a consumer. Its messages stay unacked. After an error the channel is closed.
//
// If a quorum queue is deleted meanwhile, RabbitMQ 3.10 answers twice. Nobody waits for the second answer, and the client reads
// nothing more of the whole connection until somebody does or the channel is closed. So StopConsumer makes another request, which
// gets that answer instead of its own, and fails.
func StopConsumer(ch *amqp091.Channel, tag string) error {
	err := ch.Cancel(tag, false)
	if err == nil {
		err = ch.Qos(0, 0, false) // StartConsumer sets it again
	}
	if err != nil {
		_ = ch.Close() // the broker may have closed it
	}
	return err
}

// ConsumerTagOf returns the tag of a channel's nth consumer, from 0.
func ConsumerTagOf(n int) string {
	if n == 0 {
		return ConsumerTag
	}
	return ConsumerTag + "-" + strconv.Itoa(n)
}

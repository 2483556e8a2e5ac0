package link

import (
	"errors"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

const (
	// leaderTimeout is below the 250 ms that RabbitMQ gives the leader of a quorum queue to count its messages. After
	// that, or at once if it knows no leader, RabbitMQ answers that the queue is empty and has no consumers
	// (rabbit_quorum_queue:stat).
	leaderTimeout = 200 * time.Millisecond
	// maxTries bounds the repeated checks of a queue that may be empty or without a leader.
	maxTries = 5
)

var ErrUncounted = errors.New("its leader does not answer the broker in time, look again")

// Stat returns how many messages are ready in a queue, and how many consumers it has. It fails if no leader answers
// in time. It does not notice a missing leader, see [ConfirmedStat].
func Stat(ch *amqp091.Channel, queue string) (ready, consumers int, err error) {
	for range maxTries {
		began := time.Now()
		s, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			return 0, 0, fmt.Errorf("amqp: asking for queue %s: %w", queue, err)
		}
		took := time.Since(began)
		if s.Messages > 0 || s.Consumers > 0 || took < leaderTimeout {
			return s.Messages, s.Consumers, nil
		}
		// A distant broker takes as long for a request that needs no leader.
		began = time.Now()
		if err := ch.ExchangeDeclarePassive("amq.direct", amqp091.ExchangeDirect, true, false, false, false, nil); err != nil {
			return 0, 0, fmt.Errorf("amqp: asking how far the broker is: %w", err)
		}
		if took-time.Since(began) < leaderTimeout {
			return 0, 0, nil
		}
	}
	return 0, 0, fmt.Errorf("amqp: queue %s is not counted: %w", queue, ErrUncounted)
}

// ConfirmedStat is Stat for callers that do something irrevocable with an empty queue. If it counts no message, it
// tries to get one, which only a leader can answer. It returns this message, with one more delivery.
func ConfirmedStat(ch *amqp091.Channel, queue string) (ready, consumers int, err error) {
	for range maxTries {
		ready, consumers, err = Stat(ch, queue)
		if err != nil || ready > 0 || consumers > 0 {
			return ready, consumers, err
		}
		d, ok, err := ch.Get(queue, false)
		if err != nil {
			return 0, 0, fmt.Errorf("amqp: asking queue %s whether it is empty: %w", queue, err)
		}
		if !ok {
			return 0, 0, nil
		}
		if err := d.Nack(false, true); err != nil {
			return 0, 0, fmt.Errorf("amqp: returning a message to queue %s, which is not empty: %w", queue, err)
		}
	}
	return 0, 0, fmt.Errorf("amqp: queue %s is said to be empty, and is not: %w", queue, ErrUncounted)
}

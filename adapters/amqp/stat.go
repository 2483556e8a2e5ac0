package amqp

import (
	"errors"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

const (
	// leaderTimeout is below the 250 ms that RabbitMQ gives the leader of a quorum queue to count what is in it. Then it says
	// that nothing is in it and nobody reads it, as it does at once where no leader is known (rabbit_quorum_queue:stat).
	leaderTimeout = 200 * time.Millisecond
	// maxTries is how often a queue is asked that may be empty, or may have no leader that answers.
	maxTries = 5
)

var errUncounted = errors.New("its leader does not answer the broker in time, look again")

// stat is how many messages lie ready in a queue, and how many consumers it has. It fails where no leader of the queue
// answers in time. That nobody leads it at all does not show here: see [certain].
func stat(ch *amqp091.Channel, queue string) (ready, consumers int, err error) {
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
		// A broker that is far away takes as long for what no leader is asked for.
		began = time.Now()
		if err := ch.ExchangeDeclarePassive("amq.direct", amqp091.ExchangeDirect, true, false, false, false, nil); err != nil {
			return 0, 0, fmt.Errorf("amqp: asking how far the broker is: %w", err)
		}
		if took-time.Since(began) < leaderTimeout {
			return 0, 0, nil
		}
	}
	return 0, 0, fmt.Errorf("amqp: queue %s is not counted: %w", queue, errUncounted)
}

// confirmedStat is stat for who does something irrevocable with a queue that is empty, or nothing at all. It asks an empty queue
// for a message, which no one but its leader can answer. A message that comes is put back, delivered once more than before.
func confirmedStat(ch *amqp091.Channel, queue string) (ready, consumers int, err error) {
	for range maxTries {
		ready, consumers, err = stat(ch, queue)
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
			return 0, 0, fmt.Errorf("amqp: putting back into queue %s what showed that it is not empty: %w", queue, err)
		}
	}
	return 0, 0, fmt.Errorf("amqp: queue %s is said to be empty, and is not: %w", queue, errUncounted)
}

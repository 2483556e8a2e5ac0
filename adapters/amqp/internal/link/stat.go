package link

import (
	"context"
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

// Call calls do on a channel of its own. It returns an error when ctx ends first: a queue without a leader does not
// answer. queue is for that error.
func Call[T any](ctx context.Context, l *Link, queue string, do func(*amqp091.Channel) (T, error)) (value T, err error) {
	err = l.Do(ctx, func(l *Link) (err error) {
		value, err = callOn(ctx, l, queue, do)
		return err
	})
	return value, err
}

func callOn[T any](ctx context.Context, l *Link, queue string, do func(*amqp091.Channel) (T, error)) (none T, err error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		ch, err := l.Channel(ctx)
		if err != nil {
			done <- result{none, err}
			return
		}
		value, err := do(ch)
		done <- result{value, err}
		_ = ch.Close() // the error may have closed it
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, fmt.Errorf("amqp: queue %s does not answer: %w", queue, ctx.Err())
	}
}

var ErrUncounted = errors.New("its leader does not answer the broker in time, look again")

// Counts are how many messages are ready in a queue, and how many consumers it has.
type Counts struct{ Ready, Consumers int }

// Stat counts a queue on a channel of its own.
func (l *Link) Stat(ctx context.Context, queue string) (Counts, error) {
	return Call(ctx, l, queue, func(ch *amqp091.Channel) (Counts, error) { return Stat(ch, queue) })
}

// Stat counts a queue. It fails if no leader answers in time. It does not notice a missing leader, see [ConfirmedStat].
func Stat(ch *amqp091.Channel, queue string) (none Counts, err error) {
	for range maxTries {
		began := time.Now()
		s, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			return none, fmt.Errorf("amqp: asking for queue %s: %w", queue, DescribeDenial(MethodDeclare, queue, err))
		}
		took := time.Since(began)
		if s.Messages > 0 || s.Consumers > 0 || took < leaderTimeout {
			return Counts{s.Messages, s.Consumers}, nil
		}
		// A distant broker takes as long for a request that needs no leader.
		began = time.Now()
		if err := ch.ExchangeDeclarePassive("amq.direct", amqp091.ExchangeDirect, true, false, false, false, nil); err != nil {
			return none, fmt.Errorf("amqp: asking how far the broker is: %w", err)
		}
		if took-time.Since(began) < leaderTimeout {
			return none, nil
		}
	}
	return none, fmt.Errorf("amqp: queue %s is not counted: %w", queue, ErrUncounted)
}

// ConfirmedStat is Stat for callers that do something irrevocable with an empty queue. If it counts no message, it
// tries to get one, which only a leader can answer. It returns this message, with one more delivery.
func ConfirmedStat(ch *amqp091.Channel, queue string) (counts Counts, err error) {
	for range maxTries {
		counts, err = Stat(ch, queue)
		if err != nil || counts != (Counts{}) {
			return counts, err
		}
		d, ok, err := ch.Get(queue, false)
		if err != nil {
			return counts, fmt.Errorf("amqp: asking queue %s whether it is empty: %w", queue, err)
		}
		if !ok {
			return counts, nil
		}
		if err := d.Nack(false, true); err != nil {
			return counts, fmt.Errorf("amqp: returning a message to queue %s, which is not empty: %w", queue, err)
		}
	}
	return counts, fmt.Errorf("amqp: queue %s is said to be empty, and is not: %w", queue, ErrUncounted)
}

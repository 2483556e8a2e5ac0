package amqp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
)

// opened is a channel, and what it reads; nil of suspects, which are fetched.
type opened struct {
	ch *amqp.Channel
	in <-chan amqp.Delivery
}

// begin opens the first channel of every lane, that of the origin last: a queue
// that the user may not read is refused, and not tried again for ever. Anything
// else is tried again.
func (r *reader) begin(ctx context.Context, queues []laneConfig) error {
	var denied rights
	for i := range slices.Backward(queues) {
		cfg := &queues[i]
		if cfg.kind == mainQueue && len(denied.read.of) > 0 {
			break // nobody is to get back what this would fetch
		}
		ch, in, err := r.open(ctx, *cfg)
		if refused, ok := errors.AsType[*amqp.Error](err); ok && denies(refused) {
			denied.read.add(cfg.queue, refused)
		} else if err == nil {
			cfg.first = &opened{ch, in}
		}
	}
	var ps redeliver.Problems
	denied.problems(&ps)
	err := ps.Err()
	if err == nil {
		return nil
	}
	for _, cfg := range queues {
		if cfg.first != nil {
			_ = cfg.first.ch.Close() // nothing was acked on it
		}
	}
	return fmt.Errorf("amqp: %w", err)
}

// consumerTag is of the first consumer of a channel.
const consumerTag = "redeliver"

func (r *reader) open(ctx context.Context, cfg laneConfig) (*amqp.Channel, <-chan amqp.Delivery, error) {
	ch, err := r.client.consuming.channel(ctx)
	if err != nil {
		return nil, nil, err
	}
	var in <-chan amqp.Delivery
	if cfg.kind == suspectQueue { // they are fetched one by one
		_, err = ch.QueueDeclarePassive(cfg.queue, true, false, false, false, nil)
	} else {
		in, err = read(ch, cfg.queue, 0, cfg.firstWindow(r.client.cfg.RetryBytes))
	}
	if err != nil {
		_ = ch.Close() // it is closed already, or its connection is gone
		return nil, nil, err
	}
	return ch, in, nil
}

// read begins to consume a queue, for the nth time on a channel.
func read(ch *amqp.Channel, queue string, n, prefetch int) (<-chan amqp.Delivery, error) {
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	return ch.Consume(queue, tag(n), false, false, false, false, nil)
}

// tag is of the nth consumer of a channel, from 0.
func tag(n int) string {
	if n == 0 {
		return consumerTag
	}
	return consumerTag + "-" + strconv.Itoa(n)
}

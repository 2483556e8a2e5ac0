package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
)

// Publish implements [mq.Broker].
func (c *client) Publish(topic string, messages ...*message.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.SendTimeout)
	defer cancel()
	ready, errs := make([]*link.Outgoing, len(messages)), make([]error, len(messages))
	compose := func(i int) (link.Outgoing, error) {
		if ready[i] == nil {
			out, err := c.prepare(ctx, topic, messages[i])
			if err != nil {
				return out, err
			}
			ready[i] = &out
		}
		return *ready[i], nil
	}
	var now, later []int
	for i, msg := range messages {
		if _, delayed, _ := binding.PublishDue(msg, time.Now()); delayed {
			later = append(later, i)
		} else {
			now = append(now, i)
		}
	}
	var sent sync.WaitGroup // a level that takes no messages must not keep the others from their queue
	for sender, these := range map[*link.Sender][]int{c.published: now, c.forwarded: later} {
		sent.Go(func() {
			for n, err := range sender.SendAll(ctx, len(these), func(n int) (link.Outgoing, error) { return compose(these[n]) }) {
				if errs[these[n]] = err; err != nil {
					c.declared.forgetMissing(topic, sender, err)
				}
			}
		})
	}
	sent.Wait()
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("message %d of %d: %w", i+1, len(messages), err)
		}
	}
	return errors.Join(errs...)
}

// prepare makes an outgoing message for its destination, or for the queue where it waits.
func (c *client) prepare(ctx context.Context, topic string, msg *message.Message) (out link.Outgoing, err error) {
	out.Publishing, err = c.cfg.Marshaler.Marshal(topic, msg)
	if err != nil {
		return out, fmt.Errorf("amqp: marshaling message %s: %w", msg.UUID, err)
	}
	now := time.Now().UTC()
	due, later, err := binding.PublishDue(msg, now)
	if err != nil {
		return out, fmt.Errorf("amqp: message %s for %s: %w", msg.UUID, topic, err)
	}
	if out.Timestamp.IsZero() { // Policy.MaxAge counts from here
		if out.Timestamp = now; later {
			out.Timestamp = due
		}
	}
	out.Exchange, out.Key = c.cfg.Topology.exchange(topic), c.cfg.Topology.routingKey(topic)
	if err := wire.CheckWritable(&out.Publishing, out.Exchange, out.Key, c.publishing.FrameMax()); err != nil {
		return out, fmt.Errorf("amqp: message %s for %s: %w", msg.UUID, topic, err)
	}
	if !later {
		return out, c.declared.exchange(ctx, topic)
	}
	l, err := c.declared.layout(ctx, topic)
	if err != nil {
		return out, err
	}
	rec := wire.Record{Delivery: wire.DeliveryOf(out.Publishing, out.Exchange, out.Key), Keys: c.cfg.StateKeys}
	st := redeliver.State{ID: engine.GivenID(msg.UUID), Group: l.Queue, Origin: l.Queue, Due: due, Policy: l.Fingerprint}
	var until time.Time
	out.Exchange = ""
	out.Key, until = waitingPlace(l, due, now)
	if out.Publishing, err = rec.WaitingCopy(&st, until, c.publishing.FrameMax(), wire.WaitingRoom); err != nil {
		return out, fmt.Errorf("amqp: message %s for %s: %w", msg.UUID, topic, err)
	}
	out.UserId = rec.UserId // so that the broker refuses another user's id now, not when it is due
	return out, nil
}

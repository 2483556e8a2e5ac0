package pubsub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/binding"
)

// Publish implements [mq.Broker].
func (c *client) Publish(topic string, messages ...*message.Message) error {
	var errs []error
	for _, msg := range messages {
		if err := c.publish(topic, msg); err != nil {
			errs = append(errs, fmt.Errorf("pubsub: message %s for %s: %w", msg.UUID, topic, err))
		}
	}
	return errors.Join(errs...)
}

func (c *client) publish(topic string, msg *message.Message) error {
	if c.isClosed() {
		return errClosed
	}
	now := time.Now().UTC()
	due, later, err := binding.PublishDue(msg, now)
	if err != nil {
		return err
	}
	if !later {
		return c.cfg.Publisher.Publish(topic, msg)
	}
	l, err := c.readyLayout(topic)
	if err != nil {
		return err
	}
	rec := newRecord(msg, false)
	rec.publish = true
	st := redeliver.State{ID: rec.id(), Group: l.group, Origin: topic, Due: due, Policy: l.fingerprint}
	where, waiting, err := l.compose(driver.PlaceLevel, rec, &st, now)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(msg.Context(), c.cfg.SendTimeout)
	defer cancel()
	return publishWithin(ctx, c.cfg.Publisher, where, waiting)
}

package pubsub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
)

// Publisher writes messages with the user's publisher; it is a Watermill publisher
// and safe for concurrent use.
type Publisher struct{ client *Client }

// Publish writes the messages, one after another. It returns the errors of those that are refused,
// and writes the others nevertheless.
//
// A message with Watermill's delay metadata (package components/delay) waits on the group's delay
// topics. When it is due, it is published to its topic, for all groups. For that, a Subscribe of
// the topic must run in the group.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	var errs []error
	for _, msg := range messages {
		if err := p.client.publish(topic, msg); err != nil {
			errs = append(errs, fmt.Errorf("pubsub: message %s for %s: %w", msg.UUID, topic, err))
		}
	}
	return errors.Join(errs...)
}

func (c *Client) publish(topic string, msg *message.Message) error {
	if c.isClosed() {
		return errClosed
	}
	now := time.Now().UTC()
	due, later, err := delayqueue.PublishDue(msg, now)
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

// Close implements message.Publisher and does nothing, because a Router calls it while handlers
// still run and publish. Client.Close ends the publisher.
func (p *Publisher) Close() error { return nil }

package kafkashare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
)

// Publish implements [mq.Broker].
func (c *client) Publish(topic string, messages ...*message.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.SendTimeout)
	defer cancel()
	results := make([]driver.Result, len(messages))
	for i, msg := range messages {
		results[i] = make(driver.Result, 1)
		if err := c.publishOne(ctx, topic, msg, results[i]); err != nil {
			results[i] <- err
		}
	}
	var errs []error
	for i, result := range results {
		if err := <-result; err != nil { // a write ends with ctx
			errs = append(errs, fmt.Errorf("message %d of %d: %w", i+1, len(messages), err))
		}
	}
	return errors.Join(errs...)
}

// publishOne hands one message to the client.
func (c *client) publishOne(ctx context.Context, topic string, msg *message.Message, done driver.Result) error {
	rec, err := c.cfg.Marshaler.Marshal(topic, msg)
	if err == nil && rec == nil {
		err = errors.New("the marshaler returned no record")
	}
	if err != nil {
		return fmt.Errorf("kafkashare: marshaling message %s for %s: %w", msg.UUID, topic, err)
	}
	now := time.Now().UTC()
	due, later, err := binding.PublishDue(msg, now)
	if err != nil {
		return fmt.Errorf("kafkashare: message %s for %s: %w", msg.UUID, topic, err)
	}
	if !later {
		c.publisher.write(ctx, rec, done)
		return nil
	}
	l, err := c.prepareLayout(ctx, topic)
	if err != nil {
		return err
	}
	st := redeliver.State{ID: engine.GivenID(msg.UUID), Group: l.group, Origin: topic, Due: due, Policy: l.fingerprint}
	l.writeCopy(ctx, rec, l.topicFor(due, now), &st, done)
	return nil
}

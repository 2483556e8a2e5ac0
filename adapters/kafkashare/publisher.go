package kafkashare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// Publisher writes messages. It is a Watermill publisher and safe for concurrent use.
type Publisher struct{ client *Client }

// Publish writes the messages and returns when the broker has confirmed all of them (acks of all
// in-sync replicas), after Config.SendTimeout at the latest. The error names each message that was
// not written.
//
// A message with Watermill's delay metadata (package components/delay) waits on the delay topics of
// the client's group for that topic. When it is due, a member of the group that subscribes to the
// topic publishes it there, for all groups.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.client.cfg.SendTimeout)
	defer cancel()
	results := make([]driver.Result, len(messages))
	for i, msg := range messages {
		results[i] = make(driver.Result, 1)
		if err := p.publishOne(ctx, topic, msg, results[i]); err != nil {
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
func (p *Publisher) publishOne(ctx context.Context, topic string, msg *message.Message, done driver.Result) error {
	c := p.client
	rec, err := c.cfg.Marshaler.Marshal(topic, msg)
	if err == nil && rec == nil {
		err = errors.New("the marshaler returned no record")
	}
	if err != nil {
		return fmt.Errorf("kafkashare: marshaling message %s for %s: %w", msg.UUID, topic, err)
	}
	now := time.Now().UTC()
	due, later, err := delayqueue.PublishDue(msg, now)
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

// Close implements message.Publisher and does nothing, because a Router calls it while handlers
// still run and publish. Client.Close ends the publisher.
func (p *Publisher) Close() error { return nil }

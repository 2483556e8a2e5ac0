package redelivertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
)

// Publisher writes messages; it is a Watermill publisher and safe for
// concurrent use.
type Publisher struct{ client *Client }

// Publisher returns a publisher. It publishes until the client is closed.
func (c *Client) Publisher() *Publisher { return &Publisher{c} }

// Publish writes the messages, and returns the errors of those that it refuses. A message with
// Watermill's delay metadata (package components/delay) waits in the client's group, which must
// read that topic. When it is due, it is published to the topic, for all groups.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	var errs []error
	for _, msg := range messages {
		if err := p.client.publish(topic, msg); err != nil {
			errs = append(errs, fmt.Errorf("redelivertest: message %s for %s: %w", msg.UUID, topic, err))
		}
	}
	return errors.Join(errs...)
}

func (c *Client) publish(topic string, msg *message.Message) error {
	c.b.mu.Lock()
	err := c.checkOpenLocked()
	c.b.mu.Unlock()
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	due, later, err := delayqueue.PublishDue(msg, now)
	if err != nil {
		return err
	}
	rec := marshal(msg)
	if !later {
		c.b.append(topic, rec, nil)
		return nil
	}
	p := c.cfg.policy(topic)
	st := redeliver.State{ID: engine.GivenID(msg.UUID), Group: c.cfg.Group, Origin: topic, Due: due, Policy: delayqueue.Fingerprint(p)}
	level, _ := delayqueue.NewLadder(p).Next(due.Sub(now), slack)
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	q := c.b.queueLocked(topic, c.cfg.Group)
	if err := q.refusesLocked(PlaceLevels); err != nil {
		return err
	}
	q.waitLocked(level, rec.with(&st), nil, -1)
	return nil
}

// Close implements message.Publisher and does nothing, because a Router calls it while handlers
// still run. Client.Close ends the publisher.
func (p *Publisher) Close() error { return nil }

var _ message.Publisher = (*Publisher)(nil)

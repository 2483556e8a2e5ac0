package redelivertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
)

// Publish implements [mq.Broker].
func (c *memberClient) Publish(topic string, messages ...*message.Message) error {
	var errs []error
	for _, msg := range messages {
		if err := c.publish(topic, msg); err != nil {
			errs = append(errs, fmt.Errorf("redelivertest: message %s for %s: %w", msg.UUID, topic, err))
		}
	}
	return errors.Join(errs...)
}

func (c *memberClient) publish(topic string, msg *message.Message) error {
	c.b.mu.Lock()
	err := c.checkOpenLocked()
	c.b.mu.Unlock()
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	due, later, err := binding.PublishDue(msg, now)
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

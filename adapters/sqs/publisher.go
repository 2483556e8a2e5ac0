package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
)

// Publish implements [mq.Broker].
func (c *client) Publish(topic string, messages ...*message.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.SendTimeout)
	defer cancel()
	q, err := c.publishQueue(ctx, topic)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(messages, isDelayed) {
		q.RefreshRetention(ctx)
	}
	errs := c.sender(q, api.PublishLinger).SendAll(ctx, len(messages), func(i int) (wire.Outgoing, error) {
		o, err := c.composeMessage(topic, q, messages[i])
		if err != nil {
			return o, fmt.Errorf("sqs: message %s for %s: %w", messages[i].UUID, q.Name, err)
		}
		return o, nil
	})
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("message %d of %d: %w", i+1, len(messages), err)
		}
	}
	err = errors.Join(errs...)
	if api.IsMissingQueue(err) {
		c.forgetTopic(topic)
	}
	return err
}

func isDelayed(m *message.Message) bool {
	_, later, err := binding.PublishDue(m, time.Now())
	return later && err == nil
}

// composeMessage makes the outgoing message.
func (c *client) composeMessage(topic string, q *api.Queue, msg *message.Message) (o wire.Outgoing, err error) {
	cfg := &c.cfg
	o.Body, o.Attributes, err = cfg.Marshaler.Marshal(topic, msg)
	if err != nil {
		return o, fmt.Errorf("marshaling: %w", err)
	}
	if n := o.Size(); n > q.MaxSize {
		return o, fmt.Errorf("body and attributes are %d bytes, the queue takes %d", n, q.MaxSize)
	}
	if n := len(o.Attributes); n > wire.MaxAttributes {
		return o, fmt.Errorf("it has %d attributes, SQS takes %d", n, wire.MaxAttributes)
	}
	if q.FIFO {
		o.Group, o.DedupID = q.Name, msg.UUID
		if cfg.DeduplicationID != nil {
			o.DedupID = cfg.DeduplicationID(topic, msg)
		}
	}
	if cfg.GroupID != nil {
		o.Group = cfg.GroupID(topic, msg)
	}
	now := time.Now().UTC()
	due, later, err := binding.PublishDue(msg, now)
	switch {
	case err != nil || !later:
		return o, err
	case q.FIFO:
		return o, errors.New("a message for a FIFO queue cannot wait: SQS delays such a queue as a whole or not at all")
	}
	return c.delayedCopy(q, msg, o, due, now)
}

// delayedCopy makes a copy that waits, with its due time in StateAttribute.
func (c *client) delayedCopy(q *api.Queue, msg *message.Message, o wire.Outgoing, due, now time.Time) (wire.Outgoing, error) {
	rec := wire.Record{Keys: c.cfg.StateKeys, Native: types.Message{
		Body: &o.Body, MessageAttributes: o.Attributes, Attributes: map[string]string{wire.GroupID: o.Group},
	}}
	id := msg.UUID
	if uuid, ok := wire.UUIDOf(&rec.Native); ok {
		id = uuid
	}
	st := redeliver.State{ID: engine.GivenID(id), Group: q.Name, Origin: q.Name, Due: due}
	rec.FirstID = st.ID
	waiting, ok := rec.WaitingCopy(&st, q.MaxSize)
	if ok {
		waiting.Delay = delaySeconds(q, due.Sub(now))
		return waiting, nil
	}
	// There is no room for state. SQS alone can delay the message, for up to 15 minutes.
	o.Delay = delaySeconds(q, due.Sub(now)+time.Second-1)
	if maxDelay := q.MaxDelay(); due.Sub(now) > maxDelay {
		return o, fmt.Errorf("body and attributes of %d bytes leave no room for redeliver's state in the %d that the queue takes, and SQS alone delays by %s at most", o.Size(), q.MaxSize, maxDelay)
	}
	return o, nil
}

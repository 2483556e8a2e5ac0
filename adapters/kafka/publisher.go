package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
)

// Publish implements [mq.Broker].
func (c *client) Publish(topic string, messages ...*message.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.SendTimeout)
	defer cancel()
	waiting := make([]*produce.Write, len(messages))
	errs := make([]error, len(messages))
	for i, msg := range messages {
		waiting[i], errs[i] = c.start(ctx, topic, msg)
	}
	for i, w := range waiting {
		if errs[i] == nil {
			errs[i] = w.Wait(ctx)
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("message %d of %d: %w", i+1, len(messages), errs[i])
		}
	}
	return errors.Join(errs...)
}

// start hands one message to the producer.
func (c *client) start(ctx context.Context, topic string, msg *message.Message) (*produce.Write, error) {
	m, err := c.cfg.Marshaler.Marshal(topic, msg)
	if err == nil && m == nil {
		err = errors.New("the marshaler returned no record")
	}
	if err != nil {
		return nil, fmt.Errorf("kafka: marshaling message %s: %w", msg.UUID, err)
	}
	now := time.Now().UTC()
	due, later, err := binding.PublishDue(msg, now)
	if err != nil {
		return nil, fmt.Errorf("kafka: message %s for %s: %w", msg.UUID, topic, err)
	}
	if !later {
		return c.producer.Start(ctx, m, produce.AnyPartition)
	}
	l, err := c.readyLayout(topic)
	if err != nil {
		return nil, err
	}
	if size := m.ByteSize(2); size > l.MaxRecordBytes {
		return nil, fmt.Errorf("kafka: message %s for %s: is %d bytes large and could not be published when it is due: the topic takes %d (max.message.bytes)", msg.UUID, topic, size, l.MaxRecordBytes)
	}
	if wait := due.Sub(now); wait > l.MaxWait {
		return nil, fmt.Errorf("kafka: message %s for %s: %w", msg.UUID, topic, &redeliver.UnschedulableError{Wait: wait, Max: l.MaxWait})
	}
	st := redeliver.State{ID: engine.GivenID(msg.UUID), Group: l.Group, Origin: topic, Due: due, Policy: l.Fingerprint}
	m.Topic, _ = l.TopicFor(due, now)
	record.AppendState(m, &st)
	return c.producer.Start(ctx, m, produce.AnyPartition)
}

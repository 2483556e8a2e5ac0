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
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
)

// Publisher writes messages. It is a Watermill publisher and safe for concurrent use.
type Publisher struct{ client *Client }

// Publish writes the messages and returns when the broker has confirmed all of them (acks of all
// in-sync replicas). The error names each message that could not be prepared (by the marshaler, for
// example) or that the broker refused, as in "message 2 of 3". The others are written anyway.
// Publish reads only the key (SetKey) from the messages' contexts.
// It waits for at most Config.SendTimeout.
//
// A message with Watermill's delay metadata (package components/delay) waits on the delay topics of
// the client's group for that topic, which are created with the first such message. When it is due,
// it is published to the topic, for all groups. A member of the client's group that subscribes to
// the topic does that. Without such a member the message waits, and is published late when there is
// one.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.client.cfg.SendTimeout)
	defer cancel()
	waiting := make([]*produce.Write, len(messages))
	errs := make([]error, len(messages))
	for i, msg := range messages {
		waiting[i], errs[i] = p.start(ctx, topic, msg)
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
func (p *Publisher) start(ctx context.Context, topic string, msg *message.Message) (*produce.Write, error) {
	m, err := p.client.cfg.Marshaler.Marshal(topic, msg)
	if err == nil && m == nil {
		err = errors.New("the marshaler returned no record")
	}
	if err != nil {
		return nil, fmt.Errorf("kafka: marshaling message %s: %w", msg.UUID, err)
	}
	now := time.Now().UTC()
	due, later, err := delayqueue.PublishDue(msg, now)
	if err != nil {
		return nil, fmt.Errorf("kafka: message %s for %s: %w", msg.UUID, topic, err)
	}
	if !later {
		return p.client.producer.Start(ctx, m, produce.AnyPartition)
	}
	l, err := p.client.readyLayout(topic)
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
	return p.client.producer.Start(ctx, m, produce.AnyPartition)
}

// Close implements message.Publisher and does nothing, because a Router calls it while handlers
// still run and publish. Client.Close ends the publisher.
func (p *Publisher) Close() error { return nil }

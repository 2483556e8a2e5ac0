package sqs

import (
	"context"
	"fmt"

	"github.com/redeliver/redeliver/deadletter"
)

// WaitingLevels implements [mq.LevelCounter]. It returns about how many messages wait in the queue of a topic. SQS counts messages that were sent with a
// delay, but does not show them. It counts messages that wait in a process together with those that handlers have. So
// the depth of a FIFO queue is -1.
func (c *client) WaitingLevels(ctx context.Context, topic string) ([]deadletter.WaitingLevel, error) {
	q, err := c.existingQueue(ctx, topic)
	if err != nil {
		return nil, err
	}
	level := deadletter.WaitingLevel{Place: q.Name, Depth: -1}
	switch {
	case q.FIFO:
	case q.AttributesDenied:
		return nil, fmt.Errorf("sqs: the attributes of queue %s cannot be read: grant sqs:GetQueueAttributes", q.Name)
	default:
		counts, err := q.LastCounts()
		if err != nil {
			return nil, err
		}
		level.Depth = counts.Delayed
	}
	return []deadletter.WaitingLevel{level}, nil
}

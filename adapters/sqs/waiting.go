package sqs

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redeliver/redeliver/deadletter"
)

// Waiting returns about how many messages wait in the queue of a topic. SQS counts messages that were sent with a
// delay, but does not show them. It counts messages that wait in a process together with those that handlers have. So
// the depth of a FIFO queue is -1.
func (c *Client) Waiting(ctx context.Context, topic string) ([]deadletter.WaitingLevel, error) {
	l, a, err := newLayout(&c.cfg, topic)
	if err != nil {
		return nil, err
	}
	q, err := c.findQueue(ctx, a)
	switch {
	case err != nil:
		return nil, err
	case !q.exists:
		return nil, fmt.Errorf("sqs: queue %s does not exist", a.name)
	case q.attributesDenied:
		return nil, fmt.Errorf("sqs: the attributes of queue %s cannot be read: grant sqs:GetQueueAttributes", a.name)
	}
	row := deadletter.WaitingLevel{Place: l.main.name, Depth: -1}
	if !l.main.fifo {
		row.Depth, err = strconv.ParseInt(q.attributes["ApproximateNumberOfMessagesDelayed"], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("sqs: queue %s does not report how much is delayed: %w", a.name, errors.Unwrap(err))
		}
	}
	return []deadletter.WaitingLevel{row}, nil
}

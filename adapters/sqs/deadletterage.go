package sqs

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/deadletter"
)

// Retention implements [driver.DLQ]. It returns the queue's MessageRetentionPeriod, which counts from when redeliver
// wrote a message there. If SQS itself moved the message from a standard queue, it counts from the first send.
func (q *deadLetters) Retention(ctx context.Context) (time.Duration, error) {
	attributes, err := q.client.attributesOf(ctx, q.dlq, types.QueueAttributeNameMessageRetentionPeriod)
	if err != nil {
		return 0, err
	}
	text := attributes[string(types.QueueAttributeNameMessageRetentionPeriod)]
	seconds, err := strconv.ParseInt(text, 10, 32)
	if err != nil || seconds <= 0 {
		return 0, fmt.Errorf("sqs: %w the MessageRetentionPeriod of queue %s: %q", deadletter.ErrNotReported, q.dlq.name, text)
	}
	return time.Duration(seconds) * time.Second, nil
}

// Oldest implements [driver.DLQ]. Only CloudWatch reports it (ApproximateAgeOfOldestMessage).
func (q *deadLetters) Oldest(context.Context) (at time.Time, ok bool, err error) {
	return at, false, nil
}

// DropLimit implements [driver.DLQ]. A queue of SQS is bounded only by time.
func (q *deadLetters) DropLimit(context.Context) (string, error) { return "", nil }

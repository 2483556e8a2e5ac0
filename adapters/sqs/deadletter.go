package sqs

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// DefaultLease is how long what somebody has in hand of a DLQ is hidden, and half
// of how long a runner that died keeps the next one out.
const DefaultLease = 30 * time.Second

// DeadLetterConfig says which DLQ is opened. Topic is required.
type DeadLetterConfig struct {
	// Topic is the queue whose messages failed: its name, URL or ARN.
	Topic string
	// DLQ is a queue that somebody else fills for this one: SQS itself, by a
	// RedrivePolicy, or Watermill's poison queue. Its name, URL or ARN. Default: the
	// DLQ of redeliver.
	DLQ string
	// Lease is how long a message that is looked at stays hidden when its process
	// dies; a runner, or who looks, keeps others out for up to twice as long then. In
	// whole seconds, up to 10 min. Default 30 s.
	Lease time.Duration
}

const longestLease = 10 * time.Minute

// DeadLetters opens the DLQ of a queue. Both must exist. Beside the DLQ the queue
// "<dlq>-state.fifo" is made when something is looked at. The client must stay open
// for as long as the DLQ is used.
func (c *Client) DeadLetters(ctx context.Context, cfg DeadLetterConfig) (deadletter.Queue, error) {
	if cfg.Lease == 0 {
		cfg.Lease = DefaultLease
	}
	a := parseTopic(cfg.Topic)
	var ps redeliver.Problems
	checkName(&ps, "queue of topic "+strconv.Quote(redeliver.Cut(redeliver.Redact(cfg.Topic), 200)), a.name)
	if ps.Err() == nil {
		c.cfg.Names.check(&ps, a.name)
	}
	seconds(&ps, "Lease", cfg.Lease, time.Second, longestLease)
	dead := address{name: c.cfg.Names.dlq(a.name)}
	if cfg.DLQ != "" {
		dead = parseTopic(cfg.DLQ)
		checkName(&ps, "DLQ", dead.name)
		if dead.name == a.name {
			ps.Add("DLQ", dead.name, "must not be the queue itself")
		}
	}
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	main, err := c.look(ctx, a)
	if err != nil {
		return nil, err
	}
	dlq, err := c.look(ctx, dead)
	if err != nil {
		return nil, err
	}
	if p, _, ok := dlq.redrivePolicy(); ok {
		ps.Add("queue "+dlq.name, p.Target, "must have no RedrivePolicy of its own: each look at a dead letter is a receive, and SQS would move it away")
	}
	for _, q := range []*queue{main, dlq} {
		if !q.exists {
			ps.Add("queue "+q.name, "missing", "must exist: it has never been subscribed to, or the Names differ")
		}
	}
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	return &deadLetters{
		c: c, main: main, dlq: dlq, lease: cfg.Lease, stateName: stateName(dlq.name), inside: make(chan struct{}, 1),
		info: deadletter.Info{
			Broker: "sqs", DLQ: dlq.name, Origin: main.name, Group: main.name, Back: main.name,
			Look: fmt.Sprintf("each look is a receive of every message that it passes (ApproximateReceiveCount), and hides them from others until it ends, or for %s where its process dies", cfg.Lease),
		},
	}, nil
}

// deadLetters is the DLQ of one queue. It implements deadletter.Queue.
//
// A queue of SQS cannot be read without hiding what is read. So one looks at a
// time, by a lease; leases, tasks and marks are one message in a queue beside the
// DLQ, see state.
type deadLetters struct {
	c         *Client
	main, dlq *queue
	info      deadletter.Info
	lease     time.Duration
	stateName string
	inside    chan struct{} // held by who has the state in hand, of this process

	mu       sync.Mutex
	stateURL string
	lessees  map[*lessee]bool
	closed   bool
}

// Info implements [deadletter.Queue].
func (q *deadLetters) Info() deadletter.Info { return q.info }

// Count implements [deadletter.Queue]. SQS only estimates it.
func (q *deadLetters) Count(ctx context.Context) (n int64, exact bool, err error) {
	visible, hidden, err := q.counts(ctx, q.dlq.url, q.dlq.name)
	return visible + hidden, false, err
}

// counts is about how many messages a queue has.
func (q *deadLetters) counts(ctx context.Context, url, name string) (visible, hidden int64, err error) {
	out, err := q.c.api.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	}})
	if err != nil {
		return 0, 0, errorOf("asking for queue", name, err)
	}
	number := func(name types.QueueAttributeName) int64 {
		n, err := strconv.ParseInt(out.Attributes[string(name)], 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	visible = number(types.QueueAttributeNameApproximateNumberOfMessages)
	hidden = number(types.QueueAttributeNameApproximateNumberOfMessagesNotVisible) + number(types.QueueAttributeNameApproximateNumberOfMessagesDelayed)
	return visible, hidden, nil
}

// Tasks implements [deadletter.Queue].
func (q *deadLetters) Tasks(ctx context.Context) ([]deadletter.Task, error) {
	r, err := q.record(ctx)
	return r.Tasks, err
}

// Want implements [deadletter.Queue].
func (q *deadLetters) Want(ctx context.Context, task string, w deadletter.Wanted) error {
	return q.note(ctx, func(r *deadletter.Record) bool {
		r.Want(task, w)
		return true
	})
}

// Holder implements [deadletter.Queue].
func (q *deadLetters) Holder(ctx context.Context) (h deadletter.Holder, ok bool, err error) {
	r, err := q.record(ctx)
	if err != nil || !r.Claim.Held(time.Now()) {
		return h, false, err
	}
	return r.Claim.Holder(), true, nil
}

// Close implements [deadletter.Queue]. A claim that was not released is renewed no
// more, and runs out.
func (q *deadLetters) Close() error {
	q.mu.Lock()
	lessees := q.lessees
	q.lessees, q.closed = nil, true
	q.mu.Unlock()
	for l := range lessees {
		l.stop()
	}
	return nil
}

func (q *deadLetters) url(ctx context.Context, name string) (url string, there bool, err error) {
	out, err := q.c.api.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(name)})
	switch {
	case noQueue(err):
		return "", false, nil
	case err != nil:
		return "", false, errorOf("looking for queue", name, err)
	}
	return aws.ToString(out.QueueUrl), true, nil
}

package sqs

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/rules"
)

// findQueue asks SQS for a queue. A missing queue has no URL, unless its address has one.
func (c *client) findQueue(ctx context.Context, a address) (*api.Queue, error) {
	q := &api.Queue{Name: a.name, FIFO: api.IsFIFO(a.name)}
	return q, c.describeQueue(ctx, q, a)
}

func (c *client) describeQueue(ctx context.Context, q *api.Queue, a address) error {
	if a.region != "" && c.cfg.Endpoint == "" && c.cfg.AWS.Region != "" && a.region != c.cfg.AWS.Region {
		var ps check.Problems
		ps.Add("queue "+a.name, a.region, "must be in the client's region, "+c.cfg.AWS.Region)
		return fmt.Errorf("sqs: %w", ps.Err())
	}
	q.API, q.URL = c.api, a.url
	return q.Describe(ctx, a.account, c.cfg.MaxMessageSize)
}

// describeQueues asks SQS for the queues of a layout.
func (c *client) describeQueues(ctx context.Context, l *layout) error {
	for _, q := range l.queues() {
		a := address{name: q.Name}
		if q == l.main {
			a = l.address
		}
		if err := c.describeQueue(ctx, q, a); err != nil {
			return err
		}
	}
	return nil
}

// survey reads the queues of a topic and refuses what cannot work, without creating anything. It returns all problems
// in one redeliver.ConfigError.
func (c *client) survey(ctx context.Context, topic string) (*layout, error) {
	l, err := newLayout(&c.cfg, topic)
	if err != nil {
		return nil, err
	}
	if err := c.describeQueues(ctx, l); err != nil {
		return nil, err
	}
	var ps check.Problems
	for _, q := range l.queues() {
		switch {
		case q.Exists:
		case c.cfg.NoProvisioning:
			rules.AddMissing(&ps, "queue", q.Name, "Create it with the attributes "+api.AttributesText(l.desiredAttributes(&c.cfg, q)))
		case q == l.main && l.address.url != "":
			ps.Add("queue "+q.Name, "missing", "must exist where a topic is its URL; name the queue to have it created")
		}
	}
	l.check(&ps)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	return l, nil
}

// provision creates the missing queues of a layout. A queue that others point to comes first.
// It reads back the queues that it has created, and refuses those that break a promise.
func (c *client) provision(ctx context.Context, l *layout) error {
	created := false
	for _, q := range slices.Backward(l.queues()) {
		created = created || !q.Exists
		if err := c.createQueue(ctx, l, q); err != nil {
			return err
		}
	}
	if !created {
		return nil
	}
	var ps check.Problems
	l.check(&ps)
	if err := ps.Err(); err != nil {
		return fmt.Errorf("sqs: %w", err)
	}
	return nil
}

// createQueue creates a missing queue. It leaves the description of a queue that existed, because other goroutines read
// it.
func (c *client) createQueue(ctx context.Context, l *layout, q *api.Queue) error {
	known := q.Exists
	if known {
		if _, err := q.ReadAttributes(ctx, types.QueueAttributeNameQueueArn); !api.IsMissingQueue(err) {
			return nil // the queue exists, even if this call failed for another reason
		}
		if c.cfg.NoProvisioning {
			return fmt.Errorf("sqs: queue %s was deleted, and NoProvisioning is set: create it", q.Name)
		}
	}
	url, leftOut, err := q.Create(ctx, l.desiredAttributes(&c.cfg, q), func(name string) bool { return l.needs(&c.cfg, q, name) })
	switch {
	case err == nil || api.Exists(err): // with other attributes, perhaps because another process was faster
	case api.ErrorCode(err) == "QueueDeletedRecently":
		return fmt.Errorf("%w; it was deleted within the last minute, wait for a minute", err)
	default:
		return err
	}
	sub := engine.Subscription{Origin: l.main.Name, Group: l.main.Name, Sink: c.cfg.Sink}
	for _, err := range leftOut {
		sub.EmitChange(redeliver.ChangeSettingRefused, "queue "+q.Name, err)
	}
	if known {
		return nil
	}
	q.URL = url
	return q.DescribeNew(ctx, c.cfg.MaxMessageSize)
}

package sqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
)

// findQueue asks SQS for a queue. A missing queue has no URL, unless its address has one.
func (c *Client) findQueue(ctx context.Context, a address) (*queue, error) {
	q := &queue{name: a.name, url: a.url, fifo: isFIFO(a.name)}
	return q, c.describeQueue(ctx, q, a)
}

func (c *Client) describeQueue(ctx context.Context, q *queue, a address) error {
	if a.region != "" && c.cfg.Endpoint == "" && c.cfg.AWS.Region != "" && a.region != c.cfg.AWS.Region {
		var ps redeliver.Problems
		ps.Add("queue "+a.name, a.region, "must be in the client's region, "+c.cfg.AWS.Region)
		return fmt.Errorf("sqs: %w", ps.Err())
	}
	q.url, q.maxSize = a.url, cmp.Or(c.cfg.MaxMessageSize, defaultMaxMessageSize)
	if q.url == "" {
		in := &sqs.GetQueueUrlInput{QueueName: aws.String(a.name)}
		if a.account != "" {
			in.QueueOwnerAWSAccountId = aws.String(a.account)
		}
		out, err := c.api.GetQueueUrl(ctx, in)
		switch {
		case isMissingQueue(err):
			return nil
		case err != nil:
			return errorOf("looking for queue", a.name, err)
		}
		q.url = aws.ToString(out.QueueUrl)
	}
	attributes, err := c.attributesOf(ctx, q, types.QueueAttributeNameAll)
	switch {
	case isMissingQueue(err):
	case errorCode(err) == "AccessDenied" || errorCode(err) == "AccessDeniedException":
		q.exists, q.attributesDenied = true, true
	case err != nil:
		return err
	default:
		q.setAttributes(attributes, c.cfg.MaxMessageSize)
	}
	return nil
}

// attributesOf asks SQS for attributes of a queue.
func (c *Client) attributesOf(ctx context.Context, q *queue, names ...types.QueueAttributeName) (map[string]string, error) {
	out, err := c.api.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: names})
	if err != nil {
		return nil, errorOf("reading the attributes of queue", q.name, err)
	}
	return out.Attributes, nil
}

// survey reads the queues of a topic and refuses what cannot work, without creating anything. It returns all problems
// in one redeliver.ConfigError.
func (c *Client) survey(ctx context.Context, topic string) (*layout, error) {
	l, a, err := newLayout(&c.cfg, topic)
	if err != nil {
		return nil, err
	}
	if err := c.describeQueue(ctx, l.main, a); err != nil {
		return nil, err
	}
	for _, q := range slices.Backward(l.ownQueues()) {
		if err := c.describeQueue(ctx, q, address{name: q.name}); err != nil {
			return nil, err
		}
	}
	var ps redeliver.Problems
	for _, q := range l.queues() {
		switch {
		case q.exists:
		case c.cfg.NoProvisioning:
			ps.Add("queue "+q.name, "missing", "must exist: NoProvisioning is set. Create it with the attributes "+textOf(l.desiredAttributes(&c.cfg, q)))
		case q.kind == mainQueue && a.url != "":
			ps.Add("queue "+q.name, "missing", "must exist where a topic is its URL; name the queue to have it created")
		}
	}
	l.check(&ps)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	return l, nil
}

// provision creates the missing queues of a layout. A queue that others point to comes first.
func (c *Client) provision(ctx context.Context, l *layout) error {
	for _, q := range slices.Backward(l.queues()) {
		if err := c.createQueue(ctx, l, q); err != nil {
			return err
		}
	}
	return nil
}

// createQueue creates a missing queue. It leaves the description of a queue that existed, because other goroutines read
// it.
func (c *Client) createQueue(ctx context.Context, l *layout, q *queue) error {
	known := q.exists
	if known {
		if _, err := c.attributesOf(ctx, q, types.QueueAttributeNameQueueArn); !isMissingQueue(err) {
			return nil // the queue exists, even if this call failed for another reason
		}
		if c.cfg.NoProvisioning {
			return fmt.Errorf("sqs: queue %s was deleted, and NoProvisioning is set: create it", q.name)
		}
	}
	out, err := c.api.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(q.name), Attributes: l.desiredAttributes(&c.cfg, q)})
	at := address{name: q.name}
	switch {
	case err == nil:
		at.url = aws.ToString(out.QueueUrl)
	case slices.Contains([]string{"QueueNameExists", "QueueAlreadyExists"}, errorCode(err)):
		// The queue exists with other attributes, perhaps because another process was faster.
	case errorCode(err) == "QueueDeletedRecently":
		return errorOf("creating queue", q.name, fmt.Errorf("it was deleted within the last minute, wait for a minute: %w", err))
	default:
		return errorOf("creating queue", q.name, err)
	}
	if known {
		return nil
	}
	if err := c.describeQueue(ctx, q, at); err != nil {
		return err
	}
	if !q.exists {
		return errorOf("creating queue", q.name, errors.New("SQS reports both that it exists and that it does not; try again"))
	}
	return nil
}

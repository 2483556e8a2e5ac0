package sqs

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/awshttp"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/mq"
)

// client holds a service's access to SQS, its policies, and everything that is opened from it. It is safe for
// concurrent use.
type client struct {
	cfg         Config
	api         *sqs.Client
	turn        *engine.Turn
	policyNames engine.PolicyNames
	maxHeld     maxHeld
	hidden      engine.States[string] // of messages that wait hidden: SQS cannot keep their state

	mu      sync.Mutex
	layouts map[string]*layout    // provisioned, by topic
	targets map[string]*api.Queue // queues that are only published to, by topic
	senders map[senderKey]*api.Sender
	closed  bool
}

// maxRemembered bounds the hidden messages whose state is remembered.
const maxRemembered = 100_000

type senderKey struct {
	url    string
	linger time.Duration
}

// Open checks cfg, loads the AWS configuration if cfg.AWS is nil, and returns a Client. All
// problems of cfg are in one redeliver.ConfigError. Open sends no request to SQS, because there is
// no connection to open.
func Open(ctx context.Context, cfg Config) (*mq.Client, error) {
	return mq.OpenClient(openClient(ctx, cfg))
}

// openClient checks the configuration and connects.
func openClient(ctx context.Context, cfg Config) (*client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	if cfg.AWS == nil {
		loaded, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, fmt.Errorf("sqs: reading the AWS configuration: %w", api.RedactError(err))
		}
		cfg.AWS = &loaded
	}
	if cfg.AWS.Region == "" {
		own := cfg.AWS.Copy()
		if cfg.Endpoint == "" && own.BaseEndpoint == nil {
			var ps check.Problems
			ps.Add("AWS.Region", "empty", "it is required: set AWS_REGION, a profile with a region, or Config.AWS; or Endpoint for a server of your own")
			return nil, fmt.Errorf("sqs: %w", ps.Err())
		}
		own.Region = "us-east-1" // other servers ignore the region, but the SDK signs each request for one
		cfg.AWS = &own
	}
	c := &client{
		cfg: cfg, turn: engine.NewTurn(), maxHeld: cfg.maxHeld(), hidden: engine.States[string]{MaxMessages: maxRemembered},
		layouts: make(map[string]*layout), targets: make(map[string]*api.Queue), senders: make(map[senderKey]*api.Sender),
	}
	c.api = sqs.NewFromConfig(*cfg.AWS, func(o *sqs.Options) {
		if cfg.Endpoint != "" {
			o.BaseEndpoint = aws.String(cfg.Endpoint)
		}
		o.HTTPClient = awshttp.WholeBodies{Next: awshttp.BoundResponses(o.HTTPClient)}
	})
	return c, nil
}

// provisionedLayout returns the layout of a topic. It creates the queues that are missing.
func (c *client) provisionedLayout(ctx context.Context, topic string) (*layout, error) {
	c.mu.Lock()
	l, closed := c.layouts[topic], c.closed
	c.mu.Unlock()
	if closed {
		return nil, api.ErrClosed
	}
	if l != nil {
		return l, nil
	}
	l, err := c.survey(ctx, topic)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	err = engine.CheckDistinct("sqs", l, maps.Values(c.layouts))
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := c.provision(ctx, l); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.layouts[topic]; known != nil { // another goroutine was faster
		return known, nil
	}
	if err := engine.CheckDistinct("sqs", l, maps.Values(c.layouts)); err != nil {
		return nil, err
	}
	c.layouts[topic] = l
	return l, nil
}

// publishQueue returns the queue that messages of a topic are published to.
func (c *client) publishQueue(ctx context.Context, topic string) (*api.Queue, error) {
	c.mu.Lock()
	q, l, closed := c.targets[topic], c.layouts[topic], c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return nil, api.ErrClosed
	case l != nil:
		return l.main, nil
	case q != nil:
		return q, nil
	}
	a := parseTopic(topic)
	q, err := c.findQueue(ctx, a)
	if err != nil {
		return nil, err
	}
	if !q.Exists { // create it with all its queues, because its RedrivePolicy names redeliver's DLQ
		l, err := c.provisionedLayout(ctx, topic)
		if err != nil {
			return nil, err
		}
		return l.main, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.targets[topic] = q
	return q, nil
}

// forgetTopic makes the next publish to a topic look for its queue again.
func (c *client) forgetTopic(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.targets, topic)
	delete(c.layouts, topic)
}

// sender returns the sender that writes to a queue.
func (c *client) sender(q *api.Queue, linger time.Duration) *api.Sender {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := senderKey{q.URL, linger}
	s := c.senders[key]
	if s == nil {
		s = api.NewSender(q, linger)
		c.senders[key] = s
	}
	return s
}

// Options implements [mq.Broker].
func (c *client) Options() mq.BrokerOptions {
	return mq.BrokerOptions{Name: "sqs", Subscription: "Amazon SQS", DrainTimeout: c.cfg.DrainTimeout, SendTimeout: c.cfg.SendTimeout, Unsupported: map[string]string{
		"PauseNew": "SQS keeps retries in the queue itself, which a pause stops as a whole",
		"Waiting":  "SQS does not show messages that are delayed or hidden",
		"Release":  "SQS cannot make delayed or hidden messages visible",
	}}
}

// BeginClose implements [mq.Broker].
func (c *client) BeginClose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// Disconnect implements [mq.Broker]. There is no connection to close.
func (c *client) Disconnect() {}

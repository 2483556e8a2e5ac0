package pubsub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/internal/engine"
)

// Client makes a service a member of a group. It is safe for concurrent use.
type Client struct {
	cfg Config

	mu     sync.Mutex
	subs   []*Subscriber
	closed bool

	policyNames engine.PolicyNames

	preparing sync.Mutex         // one topic at a time
	layouts   map[string]*layout // ready ones, by topic; guarded by preparing
}

var errClosed = errors.New("pubsub: the client is closed")

// Open checks the configuration and returns a Client. All problems are in one
// redeliver.ConfigError. It refuses a ctx that has ended. It does not use the Pub/Sub; [Check]
// does.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("pubsub: opening: %w", err)
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	return &Client{cfg: cfg, layouts: make(map[string]*layout)}, nil
}

// Subscriber returns a Watermill subscriber. Closing it, as a Router does, ends its subscriptions.
// The client and your subscriber stay open.
func (c *Client) Subscriber() *Subscriber {
	s := &Subscriber{client: c, readers: engine.NewReaders(errClosed)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs = append(c.subs, s)
	return s
}

// Publisher returns a Watermill publisher. It publishes until the client is closed. Closing the
// publisher, as a Router does, has no effect.
func (c *Client) Publisher() *Publisher { return &Publisher{c} }

// Close ends all subscribers and waits until their handlers have returned or the drain timeout is
// over. If ctx ends meanwhile, Close returns ctx's error and continues in the background; nothing is
// lost in either case. If ctx had already ended, Close waits for at most Config.DrainTimeout. Close
// your Publisher and Subscriber after it. A second Close does nothing.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	subs, closed := c.subs, c.closed
	c.closed = true
	c.mu.Unlock()
	if closed {
		return nil
	}
	closeSubscriber := func(s *Subscriber) { _ = s.Close() } // always nil
	if err := engine.CloseAll(ctx, subs, closeSubscriber, func() {}); err != nil {
		return fmt.Errorf("pubsub: closing: %w", err)
	}
	return nil
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// readyLayout returns the layout of a topic after it has initialized redeliver's topics.
func (c *Client) readyLayout(topic string) (*layout, error) {
	c.preparing.Lock()
	defer c.preparing.Unlock()
	if c.isClosed() {
		return nil, errClosed
	}
	if l := c.layouts[topic]; l != nil {
		return l, nil
	}
	l, err := newLayout(&c.cfg, topic)
	if err != nil {
		return nil, err
	}
	if err := engine.CheckDistinct("pubsub", l, maps.Values(c.layouts)); err != nil {
		return nil, err
	}
	if init, ok := c.cfg.Subscriber.(message.SubscribeInitializer); ok && !c.cfg.NoProvisioning {
		for _, name := range l.ownTopics() {
			if err := init.SubscribeInitialize(name); err != nil {
				return nil, fmt.Errorf("pubsub: the subscriber cannot initialize %s; create redeliver's topics and set NoProvisioning, or give it the missing rights: %w", name, err)
			}
		}
	}
	c.layouts[topic] = l
	return l, nil
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
	_ message.Publisher            = (*Publisher)(nil)
)

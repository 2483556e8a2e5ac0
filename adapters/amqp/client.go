package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/topology"
	"github.com/redeliver/redeliver/internal/engine"
)

// Client holds a service's connections to RabbitMQ, its policies, and everything that is opened from it. It is safe
// for concurrent use.
type Client struct {
	cfg Config
	// separate connections, see link
	consuming, publishing *link.Link
	// forwarded carries redeliver's copies, published the service's own messages. They are separate, because a
	// missing exchange closes the channel with all messages on it.
	forwarded, published *link.Sender

	declared declared
	channels atomic.Int32 // of the reading connection, claimed by readers

	mu     sync.Mutex
	subs   []*Subscriber
	closed bool

	policyNames  engine.PolicyNames
	turn         *engine.Turn
	places       engine.States[placeKey]
	lostSuspects engine.SuspectLosses
}

// Open checks the configuration, connects, and returns a Client. One redeliver.ConfigError has all
// problems of the configuration. If no broker answers, Open returns an error within
// Config.DialTimeout per URL, or when ctx ends.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("amqp: %w", err)
	}
	c := &Client{cfg: cfg, turn: engine.NewTurn(), places: placesOf()}
	c.declared = newDeclared(c)
	c.consuming = link.New(cfg.link("redeliver, consuming", true))
	publishing := cfg.link("redeliver, publishing", false)
	publishing.OnBlock = c.reportBlocked
	c.publishing = link.New(publishing)
	c.forwarded, c.published = link.NewSender(c.publishing), link.NewSender(c.publishing)
	for _, l := range []*link.Link{c.publishing, c.consuming} {
		if _, err := l.Get(ctx); err != nil {
			c.disconnect()
			if errors.Is(err, redeliver.ErrConfig) {
				return nil, err
			}
			return nil, fmt.Errorf("%w; check the address, the user, the virtual host and TLS", err)
		}
	}
	return c, nil
}

// reportBlocked reports an alarm of the broker.
func (c *Client) reportBlocked(reason string, blocked bool) {
	change := redeliver.ChangeUnblocked
	if blocked {
		change = redeliver.ChangeBlocked
	}
	for _, l := range c.declared.all() {
		sub := engine.Subscription{Sink: c.cfg.Sink}
		sub.Emit(redeliver.SubscriptionChanged{
			Origin: l.Queue, Group: l.Queue, Change: change, Detail: "the broker's alarm: " + reason,
		})
	}
}

func (c *Client) disconnect() {
	c.consuming.Close()
	c.publishing.Close()
}

// Subscriber returns a Watermill subscriber. Closing it, as a Router does, ends its subscriptions.
// The client and other subscribers stay open.
func (c *Client) Subscriber() *Subscriber {
	s := &Subscriber{client: c, readers: engine.NewReaders(errors.New("amqp: the subscriber is closed"))}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs = append(c.subs, s)
	return s
}

// Publisher returns a Watermill publisher. It publishes until the client is closed. Closing the
// publisher, as a Router does, has no effect.
func (c *Client) Publisher() *Publisher { return &Publisher{client: c} }

// Close ends all subscribers, waits until their handlers have returned or the drain timeout is
// over, and disconnects. If ctx ends meanwhile, Close returns ctx's error and continues in the
// background; nothing is lost in either case. If ctx had already ended, Close waits for at most
// Config.DrainTimeout. A second Close does nothing.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	subs, was := c.subs, c.closed
	c.closed = true
	c.mu.Unlock()
	if was {
		return nil
	}
	shut := func(s *Subscriber) { _ = s.Close() } // always nil
	if err := engine.CloseAll(ctx, subs, shut, c.disconnect); err != nil {
		return fmt.Errorf("amqp: closing: %w", err)
	}
	return nil
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// broker returns access to the broker's queues.
func (c *Client) broker() *topology.Broker {
	return &topology.Broker{
		Consuming: c.consuming, Publishing: c.publishing, Management: c.cfg.management(), DialTimeout: c.cfg.DialTimeout,
		ConsumerTimeout: c.cfg.ConsumerTimeout, NoProvisioning: c.cfg.NoProvisioning,
	}
}

// survey returns the layout of a topic, and what the broker reports about its queues.
func (c *Client) survey(ctx context.Context, topic string) (*layout.Layout, *topology.Survey, error) {
	l, err := newLayout(&c.cfg, topic)
	if err != nil {
		return nil, nil, err
	}
	s, err := c.broker().Survey(ctx, l)
	return l, s, err
}

// SubscribeInitialize declares the topic's queue and the other queues that a subscription of it
// needs. Watermill's components call it.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.client.cfg.SendTimeout)
	defer cancel()
	_, err := s.client.declared.layout(ctx, topic)
	return err
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
	_ message.Publisher            = (*Publisher)(nil)
)

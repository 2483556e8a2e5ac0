package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/topology"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/mq"
)

// client holds a service's connections to RabbitMQ, its policies, and everything that is opened from it. It is safe
// for concurrent use.
type client struct {
	cfg Config
	// separate connections, see link
	consuming, publishing *link.Link
	// forwarded carries redeliver's copies, published the service's own messages. They are separate, because a
	// missing exchange closes the channel with all messages on it.
	forwarded, published *link.Sender

	declared declared
	channels atomic.Int32 // of the reading connection, claimed by readers

	mu     sync.Mutex
	closed bool

	policyNames  engine.PolicyNames
	turn         *engine.Turn
	places       engine.States[placeKey]
	lostSuspects engine.SuspectLosses
}

// Open checks the configuration, connects, and returns a Client. One redeliver.ConfigError has all
// problems of the configuration. If no broker answers, Open returns an error within
// Config.DialTimeout per URL, or when ctx ends.
func Open(ctx context.Context, cfg Config) (*mq.Client, error) {
	return mq.OpenClient(openClient(ctx, cfg))
}

// openClient checks the configuration and connects.
func openClient(ctx context.Context, cfg Config) (*client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("amqp: %w", err)
	}
	c := &client{cfg: cfg, turn: engine.NewTurn(), places: placesOf()}
	c.declared = newDeclared(c)
	c.consuming = link.New(cfg.link("redeliver, consuming", true))
	publishing := cfg.link("redeliver, publishing", false)
	publishing.OnBlock = c.reportBlocked
	c.publishing = link.New(publishing)
	c.forwarded, c.published = link.NewSender(c.publishing), link.NewSender(c.publishing)
	for _, l := range []*link.Link{c.publishing, c.consuming} {
		if _, err := l.Get(ctx); err != nil {
			c.Disconnect()
			if errors.Is(err, redeliver.ErrConfig) {
				return nil, err
			}
			return nil, fmt.Errorf("%w; check the address, the user, the virtual host and TLS", err)
		}
	}
	return c, nil
}

// reportBlocked reports an alarm of the broker.
func (c *client) reportBlocked(reason string, blocked bool) {
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

func (c *client) Disconnect() {
	c.consuming.Close()
	c.publishing.Close()
}

func (c *client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// broker returns access to the broker's queues.
func (c *client) broker() *topology.Broker {
	return &topology.Broker{
		Consuming: c.consuming, Publishing: c.publishing, Management: c.cfg.management(), DialTimeout: c.cfg.DialTimeout,
		ConsumerTimeout: c.cfg.ConsumerTimeout, NoProvisioning: c.cfg.NoProvisioning,
	}
}

// survey returns the layout of a topic, and what the broker reports about its queues.
func (c *client) survey(ctx context.Context, topic string) (*layout.Layout, *topology.Survey, error) {
	l, err := newLayout(&c.cfg, topic)
	if err != nil {
		return nil, nil, err
	}
	s, err := c.broker().Survey(ctx, l)
	return l, s, err
}

// Initialize implements [mq.Broker].
func (c *client) Initialize(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.SendTimeout)
	defer cancel()
	_, err := c.declared.layout(ctx, topic)
	return err
}

// Options implements [mq.Broker].
func (c *client) Options() mq.BrokerOptions {
	return mq.BrokerOptions{Name: "amqp", Subscription: "RabbitMQ", DrainTimeout: c.cfg.DrainTimeout, SendTimeout: c.cfg.SendTimeout, Unsupported: map[string]string{
		"Waiting": "RabbitMQ cannot show waiting messages without taking them: see WaitingLevels and Release",
	}}
}

// BeginClose implements [mq.Broker].
func (c *client) BeginClose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

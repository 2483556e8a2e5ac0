package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/crashes"
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

	mu              sync.Mutex
	layouts         map[string]*layout.Layout // declared, by topic
	exchanges       map[string]bool           // topics whose exchange is declared
	deleted         map[string]bool           // topics that had a layout but lost a queue
	subs            []*Subscriber
	readingChannels int // channels for reading
	closed          bool

	turn     *engine.Turn
	places   engine.States[placeKey]
	outlived crashes.ChannelEnds
}

// Open checks the configuration, connects, and returns a Client. All problems of the configuration
// are in one redeliver.ConfigError. If no broker answers, Open returns an error within
// Config.DialTimeout for each, or when ctx ends.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("amqp: %w", err)
	}
	c := &Client{cfg: cfg, layouts: make(map[string]*layout.Layout), exchanges: make(map[string]bool), deleted: make(map[string]bool),
		turn: engine.NewTurn(), places: placesOf()}
	c.consuming = link.New(cfg.link("redeliver, consuming", true))
	publishing := cfg.link("redeliver, publishing", false)
	publishing.OnBlock = c.reportBlocked
	c.publishing = link.New(publishing)
	c.forwarded, c.published = link.NewSender(c.publishing), link.NewSender(c.publishing)
	for _, l := range []*link.Link{c.publishing, c.consuming} {
		if _, err := l.Get(ctx); err != nil {
			c.disconnect()
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
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.layouts {
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

// declaredLayout returns the layout of a topic. It declares the queues first.
func (c *Client) declaredLayout(ctx context.Context, topic string) (*layout.Layout, error) {
	c.mu.Lock()
	l, closed := c.layouts[topic], c.closed
	deleted := c.deleted[topic]
	c.mu.Unlock()
	if closed {
		return nil, link.ErrClosed
	}
	if l != nil {
		return l, nil
	}
	l, err := newLayout(&c.cfg, topic)
	if err != nil {
		return nil, err
	}
	if err := c.checkLayout(ctx, l); err != nil {
		return nil, err
	}
	declare := c.provision
	if deleted {
		declare = c.restore
	}
	if err := declare(ctx, l); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.layouts[topic] = l
	delete(c.deleted, topic)
	return l, nil
}

// reservedChannels is the number of channels of the reading connection that are reserved for declarations.
const reservedChannels = 8

// claimChannels reserves channels of the reading connection, one for each queue. A broker allows 2,047 by default.
func (c *Client) claimChannels(queue string, n int) error {
	maxChannels := c.consuming.ChannelMax() - reservedChannels
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readingChannels+n > maxChannels {
		return fmt.Errorf("amqp: subscribing to %s takes %d channels, one for each queue that is read, and %d of the connection's %d are in use: "+
			"raise the broker's channel_max, use another Client, or fewer Shards or levels", queue, n, c.readingChannels, maxChannels)
	}
	c.readingChannels += n
	return nil
}

func (c *Client) releaseChannels(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readingChannels -= n
}

// provision declares what a subscription needs.
func (c *Client) provision(ctx context.Context, l *layout.Layout) error {
	d := c.broker().Declarer(ctx)
	defer d.Close()
	return d.Declare(l)
}

// deletionDelay is a generous bound for how long the broker takes to notify a queue's readers that it was deleted. If
// the queue is declared earlier, RabbitMQ 3.10 continues with it and takes its first messages for ones that it has
// already sent. They stay unacked forever.
const deletionDelay = time.Second

// restore declares deleted queues again.
func (c *Client) restore(ctx context.Context, l *layout.Layout) error {
	timer := time.NewTimer(deletionDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return c.provision(ctx, l)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// broker returns how to check and declare queues.
func (c *Client) broker() *topology.Broker {
	return &topology.Broker{
		Consuming: c.consuming, Publishing: c.publishing, Management: c.cfg.management(), DialTimeout: c.cfg.DialTimeout,
		ConsumerTimeout: c.cfg.ConsumerTimeout, NoProvisioning: c.cfg.NoProvisioning,
	}
}

// checkLayout returns what Plan would refuse, before anything is created. If the management API does not answer, it
// reports that and relies on AMQP alone.
func (c *Client) checkLayout(ctx context.Context, l *layout.Layout) error {
	b := c.broker()
	s, err := b.Survey(ctx, l)
	if s == nil {
		return err
	}
	if err != nil {
		sub := engine.Subscription{Sink: c.cfg.Sink}
		sub.Emit(redeliver.SubscriptionChanged{
			Origin: l.Queue, Group: l.Queue, Change: redeliver.ChangeNotChecked,
			Detail: "policies and limits on the queues: the management API does not answer", Err: err,
		})
	}
	_, err = b.Verify(ctx, s, false)
	return err
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

// declareExchange makes sure that the exchange of a topic exists.
func (c *Client) declareExchange(ctx context.Context, topic string) error {
	exchange := c.cfg.Topology.exchange(topic)
	if exchange == "" || c.cfg.Topology.Existing {
		return nil
	}
	c.mu.Lock()
	done, closed := c.exchanges[topic], c.closed
	c.mu.Unlock()
	if closed {
		return link.ErrClosed
	}
	if done {
		return nil
	}
	d := c.broker().Declarer(ctx)
	defer d.Close()
	var ps redeliver.Problems
	d.DeclareExchange(&ps, exchange, c.cfg.Topology.kind())
	if err := d.Result(ps); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exchanges[topic] = true
	return nil
}

// forgetMissing makes the next publish to a topic declare again what was missing. by is the sender that got the error.
func (c *Client) forgetMissing(topic string, by *link.Sender, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if link.IsNotFound(err) {
		delete(c.exchanges, topic) // the exchange
	}
	if errors.Is(err, link.ErrNoQueue) && by == c.forwarded {
		delete(c.layouts, topic)
		c.deleted[topic] = true
	}
}

// SubscribeInitialize declares the topic's queue and the other queues that a subscription of it
// needs. Watermill's components call it.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.client.cfg.SendTimeout)
	defer cancel()
	_, err := s.client.declaredLayout(ctx, topic)
	return err
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
	_ message.Publisher            = (*Publisher)(nil)
)

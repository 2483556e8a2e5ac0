package kafkashare

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/mq"
)

// client is one service's part in a share group: its connections, its policies, and everything that
// is opened from it. It is safe for concurrent use.
type client struct {
	cfg       Config
	client    *kgo.Client // asks the brokers
	admin     admin
	publisher *recordWriter
	group     groupSettings

	preparing sync.Mutex // one layout at a time
	mu        sync.Mutex
	layouts   map[string]*layout
	closed    bool

	checkInterval time.Duration
}

var errClosed = errors.New("kafkashare: the client is closed")

// forKafka says where the operations of a share group's retries are: they wait in a consumer group.
const forKafka = "open package kafka's client of the same Group; it works on these topics, too"

// openTimeout bounds how long Open waits for a cluster that does not answer.
const openTimeout = 30 * time.Second

// Open checks the configuration and the cluster, and returns a Client. All problems are in one
// redeliver.ConfigError.
func Open(ctx context.Context, cfg Config) (*mq.Client, error) {
	return mq.OpenClient(openClient(ctx, cfg))
}

// openClient checks the configuration and connects.
func openClient(ctx context.Context, cfg Config) (*client, error) {
	cfg = cfg.withDefaults()
	var ps check.Problems
	cfg.check(&ps)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("kafkashare: %w", err)
	}
	c := &client{cfg: cfg, layouts: make(map[string]*layout), checkInterval: checkInterval}
	var err error
	if c.client, err = c.newClient(); err != nil {
		return nil, err
	}
	c.admin = admin{c.client}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("no answer from %v within %s", cfg.Brokers, openTimeout))
	defer cancel()
	if err := c.checkCluster(ctx); err != nil {
		c.client.Close()
		return nil, fmt.Errorf("kafkashare: %w", errors.Join(err, context.Cause(ctx)))
	}
	if c.publisher, err = c.newWriter(); err != nil {
		c.client.Close()
		return nil, err
	}
	return c, nil
}

// newClient makes a client of franz-go. A write ends when its context does, even without an answer: the record may be
// written, and the next try makes a second copy. Otherwise one write would hang for as long as an outage lasts, and
// no event would report that.
func (c *client) newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	all := append([]kgo.Opt{}, c.cfg.Options...)
	cl, err := kgo.NewClient(append(append(all, kgo.SeedBrokers(c.cfg.Brokers...), kgo.AllowIdempotentProduceCancellation()), opts...)...)
	if err != nil {
		return nil, fmt.Errorf("kafkashare: making a client: %w", err)
	}
	return cl, nil
}

func (c *client) Disconnect() {
	c.preparing.Lock()
	defer c.preparing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.layouts {
		l.writer.close()
	}
	c.publisher.close()
	c.client.Close()
}

// Options implements [mq.Broker].
func (c *client) Options() mq.BrokerOptions {
	return mq.BrokerOptions{Name: "kafkashare", Subscription: fmt.Sprintf("group %s on %v", c.cfg.Group, c.cfg.Brokers), DrainTimeout: c.cfg.DrainTimeout, SendTimeout: c.cfg.SendTimeout, Unsupported: map[string]string{
		"DeadLetters": forKafka, "DeadLetterQueues": forKafka, "Waiting": forKafka, "WaitingLevels": forKafka,
		"Release": "a share group reads no commands about waiting messages",
	}}
}

// BeginClose implements [mq.Broker].
func (c *client) BeginClose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

package kafkashare

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
)

// Client is one service's part in a share group: its connections, its policies, and everything that
// is opened from it. It is safe for concurrent use.
type Client struct {
	cfg       Config
	client    *kgo.Client // asks the brokers
	admin     admin
	publisher *recordWriter
	group     groupSettings

	preparing sync.Mutex // one layout at a time
	mu        sync.Mutex
	layouts   map[string]*layout
	subs      []*Subscriber
	closed    bool

	checkInterval time.Duration
}

var errClosed = errors.New("kafkashare: the client is closed")

// openTimeout bounds how long Open waits for a cluster that does not answer.
const openTimeout = 30 * time.Second

// Open checks the configuration and the cluster, and returns a Client. All problems are in one
// redeliver.ConfigError.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	var ps check.Problems
	cfg.check(&ps)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("kafkashare: %w", err)
	}
	c := &Client{cfg: cfg, layouts: make(map[string]*layout), checkInterval: checkInterval}
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
func (c *Client) newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	all := append([]kgo.Opt{}, c.cfg.Options...)
	cl, err := kgo.NewClient(append(append(all, kgo.SeedBrokers(c.cfg.Brokers...), kgo.AllowIdempotentProduceCancellation()), opts...)...)
	if err != nil {
		return nil, fmt.Errorf("kafkashare: making a client: %w", err)
	}
	return cl, nil
}

// Subscriber returns a Watermill subscriber of the share group. Closing it, as a Router does, ends
// its subscriptions.
func (c *Client) Subscriber() *Subscriber {
	s := &Subscriber{client: c, readers: engine.NewReaders(errors.New("kafkashare: the subscriber is closed"))}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs = append(c.subs, s)
	return s
}

// Publisher returns a Watermill publisher. It publishes until the client is closed.
func (c *Client) Publisher() *Publisher { return &Publisher{client: c} }

// Close ends all subscribers, waits until their handlers have returned or the drain timeout is
// over, and disconnects. If ctx ends meanwhile, Close returns ctx's error and continues in the
// background. A second Close does nothing.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	subs, wasClosed := c.subs, c.closed
	c.closed = true
	c.mu.Unlock()
	if wasClosed {
		return nil
	}
	closeOne := func(s *Subscriber) { _ = s.Close() } // always nil
	if err := engine.CloseAll(ctx, subs, closeOne, c.disconnect); err != nil {
		return fmt.Errorf("kafkashare: closing: %w", err)
	}
	return nil
}

func (c *Client) disconnect() {
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

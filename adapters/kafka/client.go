package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/adapters/kafka/internal/reader"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/kafkaname"
)

// Client takes part in a consumer group. It owns the connections, and everything that is opened
// from it. It is safe for concurrent use.
type Client struct {
	cfg      Config
	admin    cluster.Admin
	topics   *topology.Provisioner
	producer *produce.Producer
	owner    string       // the client's name in commit metadata
	turn     *engine.Turn // one suspect runs at a time, see package crash

	mu      sync.Mutex
	layouts map[string]*topology.Layout // provisioned layouts, by origin
	static  map[string]bool             // topics that a static member reads
	subs    []*Subscriber
	closed  bool

	sweepInterval time.Duration
}

// Open checks the configuration, connects, and returns a Client. All problems of the configuration
// are in one redeliver.ConfigError. If no broker of the cluster answers, Open returns an error
// within the dial timeout (Sarama.Net.DialTimeout, default 10 s) or when ctx ends.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	clientConfig := cfg.clientConfig()
	return cluster.WithinDialTimeout(ctx, cfg.Brokers, clientConfig, func() (*Client, error) { return connect(cfg, clientConfig) }, (*Client).disconnect)
}

func connect(cfg Config, clientConfig *sarama.Config) (*Client, error) {
	client, err := cluster.NewClient(cfg.Brokers, clientConfig)
	if err != nil {
		return nil, err
	}
	clusterAdmin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("kafka: asking %v for its controller: %w", cfg.Brokers, err)
	}
	p, err := produce.New(cfg.Brokers, cfg.producerConfig())
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	admin := cluster.Admin{Client: client, Sarama: clusterAdmin}
	return &Client{
		cfg: cfg, admin: admin, topics: &topology.Provisioner{Admin: admin, Config: cfg.topology()}, producer: p, layouts: make(map[string]*topology.Layout), static: make(map[string]bool),
		owner: commitmeta.NewOwner(), turn: engine.NewTurn(), sweepInterval: reader.SweepInterval,
	}, nil
}

// disconnect closes what connect opened. Nobody is left to handle errors.
func (c *Client) disconnect() {
	c.producer.Close()
	_ = c.admin.Client.Close()
}

// Subscriber returns a Watermill subscriber of the client's group. Closing it, as a Router does,
// ends its subscriptions. The client and other subscribers stay open.
func (c *Client) Subscriber() *Subscriber {
	s := &Subscriber{client: c, readers: engine.NewReaders(errors.New("kafka: the subscriber is closed"))}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs = append(c.subs, s)
	return s
}

// Publisher returns a Watermill publisher. It publishes until the client is closed. Closing the
// publisher, as a Router does, has no effect.
func (c *Client) Publisher() *Publisher { return &Publisher{client: c} }

// Close ends all subscribers, waits until their handlers have returned or the drain timeout is
// over, finishes the writes that have begun, and disconnects. If ctx ends meanwhile, Close returns
// ctx's error and continues in the background; nothing is lost in either case. If ctx had already
// ended, Close waits for at most Config.DrainTimeout and SendTimeout together. A second Close does
// nothing.
func (c *Client) Close(ctx context.Context) error {
	var limit string // appended to the error when Close set the limit itself
	if ctx.Err() != nil {
		maxWait := c.cfg.DrainTimeout + c.cfg.SendTimeout
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), maxWait)
		defer cancel()
		limit = fmt.Sprintf(" after %s (DrainTimeout and SendTimeout)", maxWait)
	}
	c.mu.Lock()
	subs, wasClosed := c.subs, c.closed
	c.closed = true
	c.mu.Unlock()
	if wasClosed {
		return nil
	}
	var remaining atomic.Int64 // subscribers that are still open
	remaining.Store(int64(len(subs)))
	closeOne := func(s *Subscriber) {
		_ = s.Close()
		remaining.Add(-1)
	}
	if err := engine.CloseAll(ctx, subs, closeOne, c.disconnect); err != nil {
		pending := "the producer still waits for answers"
		if n := remaining.Load(); n > 0 {
			pending = fmt.Sprintf("%d of %d subscribers have not drained and left group %s", n, len(subs), c.cfg.Group)
		}
		return fmt.Errorf("kafka: closing: %w%s: %s; check whether brokers %v answer. It continues in the background, and nothing is lost: unacked messages come back",
			err, limit, pending, c.cfg.Brokers)
	}
	return nil
}

// layout returns the layout of a subscription. It refuses names that another subscription of the client uses.
func (c *Client) layout(topic, group string) (*topology.Layout, error) {
	l, err := c.topics.Layout(topic, group, c.cfg.policy(topic))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return l, engine.CheckDistinct("kafka", l, maps.Values(c.layouts))
}

// readyLayout returns the layout of a topic, and provisions its topics at the first call.
func (c *Client) readyLayout(topic string) (*topology.Layout, error) {
	c.mu.Lock()
	l, closed := c.layouts[topic], c.closed
	c.mu.Unlock()
	if closed {
		return nil, produce.ErrClosed
	}
	if l != nil {
		return l, nil
	}
	l, err := c.layout(topic, c.cfg.Group)
	if err != nil {
		return nil, err
	}
	if err := c.topics.Provision(l); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := engine.CheckDistinct("kafka", l, maps.Values(c.layouts)); err != nil { // another Subscribe may have been faster
		return nil, err
	}
	c.layouts[topic] = l
	return l, nil
}

// SubscribeInitialize creates the origin topic with the broker's defaults if it does not exist, and
// everything that a subscription of it needs. Watermill's components call it.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	var ps check.Problems
	kafkaname.CheckTopic(&ps, "topic", topic)
	if err := ps.Err(); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	existing, err := s.client.admin.Topics(topic)
	if err != nil {
		return err
	}
	if existing[topic] == nil {
		if _, err := s.client.admin.CreateTopic(cluster.Topic{Name: topic, Partitions: -1, Replicas: -1}); err != nil {
			return err
		}
		if err := s.client.admin.AwaitLeaders(topic); err != nil {
			return err
		}
	}
	_, err = s.client.readyLayout(topic)
	return err
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
	_ message.Publisher            = (*Publisher)(nil)
)

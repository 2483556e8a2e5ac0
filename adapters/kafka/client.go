package kafka

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/adapters/kafka/internal/reader"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/mq"
)

// client takes part in a consumer group. It owns the connections, and everything that is opened
// from it. It is safe for concurrent use.
type client struct {
	cfg      Config
	admin    cluster.Admin
	topics   *topology.Provisioner
	producer *produce.Producer
	owner    string       // the client's name in commit metadata
	turn     *engine.Turn // one suspect runs at a time, see package crash

	mu      sync.Mutex
	layouts map[string]*topology.Layout // provisioned layouts, by origin
	static  map[string]bool             // topics that a static member reads
	closed  bool

	sweepInterval time.Duration
}

// Open checks the configuration, connects, and returns a Client. All problems of the configuration
// are in one redeliver.ConfigError. If no broker of the cluster answers, Open returns an error
// within the dial timeout (Sarama.Net.DialTimeout, default 10 s) or when ctx ends.
func Open(ctx context.Context, cfg Config) (*mq.Client, error) {
	return mq.OpenClient(openClient(ctx, cfg))
}

// openClient checks the configuration and connects.
func openClient(ctx context.Context, cfg Config) (*client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	clientConfig := cfg.clientConfig()
	return cluster.WithinDialTimeout(ctx, cfg.Brokers, clientConfig, func() (*client, error) { return connect(cfg, clientConfig) }, (*client).Disconnect)
}

func connect(cfg Config, clientConfig *sarama.Config) (*client, error) {
	conn, err := cluster.NewClient(cfg.Brokers, clientConfig)
	if err != nil {
		return nil, err
	}
	clusterAdmin, err := sarama.NewClusterAdminFromClient(conn)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("kafka: asking %v for its controller: %w", cfg.Brokers, err)
	}
	p, err := produce.New(cfg.Brokers, cfg.producerConfig())
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	admin := cluster.Admin{Client: conn, Sarama: clusterAdmin}
	return &client{
		cfg: cfg, admin: admin, topics: &topology.Provisioner{Admin: admin, Config: cfg.topology()}, producer: p, layouts: make(map[string]*topology.Layout), static: make(map[string]bool),
		owner: commitmeta.NewOwner(), turn: engine.NewTurn(), sweepInterval: reader.SweepInterval,
	}, nil
}

// Disconnect closes what connect opened. Nobody is left to handle errors.
func (c *client) Disconnect() {
	c.producer.Close()
	_ = c.admin.Client.Close()
}

// layout returns the layout of a subscription. It refuses names that another subscription of the client uses.
func (c *client) layout(topic, group string) (*topology.Layout, error) {
	l, err := c.topics.Layout(topic, group, c.cfg.policy(topic))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return l, engine.CheckDistinct("kafka", l, maps.Values(c.layouts))
}

// readyLayout returns the layout of a topic, and provisions its topics at the first call.
func (c *client) readyLayout(topic string) (*topology.Layout, error) {
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

// Initialize implements [mq.Broker].
func (c *client) Initialize(topic string) error {
	var ps check.Problems
	kafkaname.CheckTopic(&ps, "topic", topic)
	if err := ps.Err(); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	existing, err := c.admin.Topics(topic)
	if err != nil {
		return err
	}
	if existing[topic] == nil {
		if _, err := c.admin.CreateTopic(cluster.Topic{Name: topic, Partitions: -1, Replicas: -1}); err != nil {
			return err
		}
		if err := c.admin.AwaitLeaders(topic); err != nil {
			return err
		}
	}
	_, err = c.readyLayout(topic)
	return err
}

// Options implements [mq.Broker].
func (c *client) Options() mq.BrokerOptions {
	return mq.BrokerOptions{Name: "kafka", Subscription: fmt.Sprintf("group %s on %v", c.cfg.Group, c.cfg.Brokers), DrainTimeout: c.cfg.DrainTimeout, SendTimeout: c.cfg.SendTimeout}
}

// BeginClose implements [mq.Broker].
func (c *client) BeginClose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/reader"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/internal/engine"
)

// Subscriber delivers the messages of topics to the client's group. It is a Watermill subscriber and safe for
// concurrent use.
type Subscriber struct {
	client  *Client
	readers *engine.Readers
}

// Subscribe joins the group for a topic and its delay topics, after it has created or checked them,
// and delivers messages until ctx ends or the subscriber is closed. Every call joins as a separate
// member.
//
// Up to Config.MaxInFlight first deliveries run at once, those of one key one after another. Later
// messages of the key overtake a failed one, unless Policy.Order says otherwise. A message is done
// when it is acked. A nacked message has failed an attempt, and the policy decides as after an
// error.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	var out chan *message.Message
	err := s.readers.Begin(ctx, func(ctx context.Context) (func(context.Context), error) {
		if err := s.client.checkPolicyNames(topic); err != nil {
			return nil, err
		}
		r, err := s.client.openReader(ctx, topic)
		if err != nil {
			return nil, err
		}
		out = make(chan *message.Message)
		return func(ctx context.Context) {
			defer s.client.releaseStatic(topic)
			r.Run(ctx, engine.Options[*sarama.ConsumerMessage]{Out: out})
		}, nil
	})
	return out, err
}

// checkPolicyNames refuses policies of topics that do not exist and that the client does not read.
func (c *Client) checkPolicyNames(topics ...string) error {
	c.mu.Lock()
	read := append(slices.Collect(maps.Keys(c.layouts)), topics...)
	c.mu.Unlock()
	err := engine.CheckPolicyNames("topic", c.cfg.Topics, read, func(name string) (bool, error) {
		existing, err := c.admin.Topics(name)
		return existing[name] != nil, err
	})
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	return nil
}

// openReader makes a member of the group that reads a topic and its delay topics. It creates or checks the topics
// first. The reader has the values of ctx, but does not end with ctx.
func (c *Client) openReader(ctx context.Context, topic string) (*reader.Reader, error) {
	if err := engine.CheckReceiver(ctx, c.cfg.policy(topic)); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	l, err := c.readyLayout(topic)
	if err != nil {
		return nil, err
	}
	if c.cfg.Sarama.Consumer.Offsets.Initial == sarama.OffsetNewest && !c.cfg.SkipExisting {
		if err := reader.CheckNewest(c.admin, l); err != nil {
			return nil, err
		}
	}
	if err := c.claimStatic(topic); err != nil {
		return nil, err
	}
	group, err := sarama.NewConsumerGroup(c.cfg.Brokers, c.cfg.Group, c.cfg.consumerConfig(topic))
	if err != nil {
		c.releaseStatic(topic)
		return nil, fmt.Errorf("kafka: connecting to %v as group %s: %w", c.cfg.Brokers, c.cfg.Group, err)
	}
	return c.newReader(ctx, l, group, c.cfg.rebalanceDrain(), "Raise Sarama.Consumer.Group.Rebalance.Timeout (redeliver run: --drain) to 10 s above the time of the handler"), nil
}

// newReader makes a reader of a layout's topics in a group. At a rebalance its attempts have drain to end; cutAdvice says
// what to set if that is too short.
func (c *Client) newReader(ctx context.Context, l *topology.Layout, group sarama.ConsumerGroup, drain time.Duration, cutAdvice string) *reader.Reader {
	cfg := &c.cfg
	return reader.New(ctx, reader.Config{
		Layout: l, Group: group, Provisioner: c.topics, Producer: c.producer, Unmarshaler: cfg.Marshaler, Owner: c.owner,
		Sub: &engine.Subscription{
			Origin: l.Origin, Group: l.Group, Policy: l.Policy, Sink: cfg.Sink, Tracer: cfg.Tracer, SendTimeout: cfg.SendTimeout,
			NackDelay: cfg.NackDelay, MaxInFlight: cfg.MaxInFlight, MaxRetriesInFlight: cfg.MaxRetriesInFlight, MinInFlight: cfg.MinInFlight,
			KeepsPlace: l.Policy.Order == redeliver.OrderBlocking, Discards: l.Discards, Turn: c.turn,
		},
		SkipsExisting: cfg.SkipExisting, SpringHeaders: cfg.SpringHeaders, MaxWaiting: cfg.MaxWaiting, DrainTimeout: cfg.DrainTimeout,
		RebalanceDrain: drain, CutAdvice: cutAdvice,
		CommitInterval: cfg.clientConfig().Consumer.Offsets.AutoCommit.Interval, SweepInterval: c.sweepInterval,
		FencedAfter: cfg.Sarama.Consumer.Group.Session.Timeout + cfg.Sarama.Consumer.Group.Heartbeat.Interval,
	})
}

// claimStatic refuses a second static member that reads the same topic. Both would have the same group.instance.id, so
// the group would fence one of them for good.
func (c *Client) claimStatic(topic string) error {
	if c.cfg.InstanceID == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.static[topic] {
		return fmt.Errorf("kafka: topic %s is subscribed to already: a client with an InstanceID reads each topic once; raise MaxInFlight instead", topic)
	}
	c.static[topic] = true
	return nil
}

func (c *Client) releaseStatic(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.static, topic)
}

// Close ends all subscriptions and returns when their channels are closed. It waits for messages in
// flight, up to Config.DrainTimeout. After that their contexts are cancelled, and they stay
// unacked.
func (s *Subscriber) Close() error {
	s.readers.Close()
	return nil
}

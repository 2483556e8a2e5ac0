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
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
)

// Subscribe implements [mq.Broker].
func (c *client) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, func(context.Context), error) {
	if err := c.checkPolicyNames(topic); err != nil {
		return nil, nil, err
	}
	r, err := c.openReader(ctx, topic)
	if err != nil {
		return nil, nil, err
	}
	router := binding.New(record.ToWatermill(c.cfg.Marshaler.Unmarshal))
	return router.Messages(), func(ctx context.Context) {
		defer c.releaseStatic(topic)
		r.Run(ctx, engine.Options[*sarama.ConsumerMessage]{Handler: router})
	}, nil
}

// checkPolicyNames refuses policies of topics that do not exist and that the client does not read.
func (c *client) checkPolicyNames(topics ...string) error {
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
func (c *client) openReader(ctx context.Context, topic string) (*reader.Reader, error) {
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
func (c *client) newReader(ctx context.Context, l *topology.Layout, group sarama.ConsumerGroup, drain time.Duration, cutAdvice string) *reader.Reader {
	cfg := &c.cfg
	return reader.New(ctx, reader.Config{
		Layout: l, Group: group, Provisioner: c.topics, Producer: c.producer, Owner: c.owner,
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
func (c *client) claimStatic(topic string) error {
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

func (c *client) releaseStatic(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.static, topic)
}

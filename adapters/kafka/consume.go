package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// Handler handles a record, see [Consume].
type Handler func(ctx context.Context, rec *sarama.ConsumerMessage) error

// Consume calls handler for the records of topics, as a member of config.Group
// with retries, delays and a DLQ, until ctx ends: for a service that knows
// nothing of Watermill. What [Subscriber] promises holds here too: the same
// topics, order of keys, bounds, headers and events.
//
// handler's answer is an error value: nil is done, and about everything else the
// policy decides (redeliver.Permanent, redeliver.RetryAfter, ...); a panic and a
// time-out are failures. It is called by many goroutines at once, MaxInFlight
// first deliveries and MaxRetriesInFlight retries for each topic, with the record
// as it stood in its topic, whatever its attempt: redeliver.FromContext tells
// which one it is. The record must not be changed; after the handler has returned
// it may be kept. ctx's values are in the handler's context, its end is not: that
// comes with the policy's Timeout, and when the record is lost to this process.
//
// client says where the cluster is and how it is spoken to: its brokers and a copy
// of its configuration are taken, so config.Brokers and config.Sarama must be
// empty; so must Marshaler and NackDelay, which are about Watermill messages.
// Connections are our own, client is not used later, and whether it is closed is
// the caller's business. What is refused in Config.Sarama is refused here, too:
// Offsets.AutoCommit disabled above all. Each topic is a member of its own.
//
// Consume returns nil when ctx has ended: handlers that run may finish within
// config.DrainTimeout, then their contexts end, and their records stay
// uncommitted. It returns an error when it cannot begin: all that is wrong with the
// call and with config is in one redeliver.ConfigError. What fails later is told to
// config.Sink and tried again.
func Consume(ctx context.Context, client sarama.Client, config Config, topics []string, handler Handler) error {
	config, ps := config.behind(client, topics, handler == nil)
	return config.consume(ctx, ps, topics, engine.Options[*sarama.ConsumerMessage]{Handle: handler})
}

// consume reads topics until ctx ends. opt says who handles their records. It
// returns what is wrong with the call before it begins anything.
func (c Config) consume(ctx context.Context, ps redeliver.Problems, topics []string, opt engine.Options[*sarama.ConsumerMessage]) error {
	c.checkBehind(&ps, topics, orders)
	if err := ps.Err(); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	client, err := Open(ctx, c)
	if err != nil {
		return err
	}
	readers, err := client.consumers(ctx, topics)
	if err == nil {
		var all sync.WaitGroup
		for _, r := range readers {
			all.Go(func() { r.run(ctx, opt) })
		}
		all.Wait()
	}
	return errors.Join(err, client.Close(ctx))
}

// consumers makes a reader for each topic. With an error there is none.
func (c *Client) consumers(ctx context.Context, topics []string) ([]*reader, error) {
	var readers []*reader
	var errs []error
	for _, topic := range topics {
		r, err := c.reader(ctx, topic)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		readers = append(readers, r)
	}
	if errs == nil {
		return readers, nil
	}
	for _, r := range readers {
		_ = r.group.Close() // nobody has joined
	}
	return nil, oneError(errs)
}

// oneError joins the errors of topics: what is wrong with any configuration is in one
// redeliver.ConfigError.
func oneError(errs []error) error {
	var ps redeliver.Problems
	var others []error
	for _, err := range errs {
		if bad, ok := errors.AsType[*redeliver.ConfigError](err); ok {
			ps = append(ps, bad.Problems...)
		} else {
			others = append(others, err)
		}
	}
	if err := ps.Err(); err != nil {
		others = append(others, fmt.Errorf("kafka: %w", err))
	}
	return errors.Join(others...)
}

// behind is the configuration with what client says, and all that is wrong with a
// call of Consume, ConsumeBatch or Wrap, but for what checkBehind looks at.
func (c Config) behind(client sarama.Client, topics []string, handlerMissing bool) (_ Config, ps redeliver.Problems) {
	if len(c.Brokers) > 0 {
		ps.Add("Brokers", c.Brokers, "must be empty: the client says where the brokers are")
	}
	if c.Sarama != nil {
		ps.Add("Sarama", "set", "must be nil: the client's configuration is used")
	}
	if c.Marshaler != nil {
		ps.Add("Marshaler", fmt.Sprintf("%T", c.Marshaler), "must be nil: the handler gets Kafka's own record")
	}
	if c.NackDelay != 0 {
		ps.Add("NackDelay", c.NackDelay, "must be 0: a handler of records has no nack; it returns redeliver.RetryAfter")
	}
	c.Brokers, c.Sarama, c.NackDelay = nil, nil, 0
	if len(topics) == 0 {
		ps.Add("topics", "empty", "it is required: at least one topic")
	}
	for i, topic := range topics {
		checkTopic(&ps, fmt.Sprintf("topics[%d]", i), topic)
		if slices.Contains(topics[:i], topic) {
			ps.Add(fmt.Sprintf("topics[%d]", i), fmt.Sprintf("%q", topic), "must not be there twice")
		}
	}
	if handlerMissing {
		ps.Add("handler", "nil", "it is required")
	}
	switch {
	case client == nil:
		ps.Add("client", "nil", "it is required: it says where the brokers are")
	case client.Closed():
		ps.Add("client", "closed", "must be open")
	default:
		c.Sarama = client.Config()
		for _, b := range client.Brokers() {
			c.Brokers = append(c.Brokers, b.Addr())
		}
		slices.Sort(c.Brokers)
		if len(c.Brokers) == 0 {
			ps.Add("client", "knows no broker", "must have read the cluster's metadata: call its RefreshMetadata")
		}
	}
	return c, ps
}

// checkBehind notes what is wrong with the configuration that such a call has, so that
// all is told at once. Where behind has no client, nothing is said of its configuration.
func (c Config) checkBehind(ps *redeliver.Problems, topics []string, allowed []redeliver.Order) {
	known := c.Sarama != nil
	c = c.withDefaults()
	c.check(ps, allowed)
	if known {
		c.checkGroupConfig(ps)
	}
	if known && slices.Contains(allowed, redeliver.PerKey) {
		c.checkPerKey(ps)
	}
	for i, topic := range topics {
		var bad redeliver.Problems // told of already
		checkTopic(&bad, "", topic)
		checkGroup(&bad, "", c.Group)
		if bad == nil && !slices.Contains(topics[:i], topic) {
			c.Names.check(ps, topic, c.Group)
		}
	}
}

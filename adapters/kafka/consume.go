package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/reader"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/mq"
)

// Handler handles a record, see [Consume].
type Handler func(ctx context.Context, rec *sarama.ConsumerMessage) error

// Consume calls handler for the records of topics, as a member of config.Group with retries, delays
// and a DLQ, until ctx ends. It is for services without Watermill, and keeps the promises of
// [Subscriber]: the same topics, order of keys, bounds, headers and events.
//
// The handler answers with an error value. After nil the record is done. After any other value
// (redeliver.Permanent, redeliver.RetryAfter, ...) the policy decides. A panic and a timeout are
// failures. Many goroutines call the handler at once, for MaxInFlight first deliveries and
// MaxRetriesInFlight retries of each topic. At every attempt it gets the record as it is in its
// topic; redeliver.FromContext returns the number of the attempt. The handler must not change the
// record, but may keep it after it has returned. Its context has the values of ctx, but does not
// end with ctx. It ends with the policy's Timeout, or when this process loses the record.
//
// Consume takes the brokers and a copy of the configuration from client, so config.Brokers and
// config.Sarama must be empty. So must Marshaler and NackDelay, which concern Watermill messages.
// Consume opens its own connections and does not use client after that; the caller closes it.
// Settings that Config.Sarama refuses are refused here, too, above all a disabled
// Offsets.AutoCommit. For each topic Consume joins the group with a separate member.
//
// Consume returns nil when ctx has ended. Running handlers may then finish within
// config.DrainTimeout; after that their contexts end, and their records stay uncommitted. It
// returns an error when it cannot begin, with all problems of the call and of config in one
// redeliver.ConfigError. It reports later failures to config.Sink and tries again.
func Consume(ctx context.Context, client sarama.Client, config Config, topics []string, handler Handler) error {
	config, ps := config.withClient(client, topics, handler == nil)
	return config.runReaders(ctx, ps, topics, engine.Options[*sarama.ConsumerMessage]{Handle: handler})
}

// runReaders reads topics until ctx ends, and handles their records as opt says. ps has the problems of the call.
func (c Config) runReaders(ctx context.Context, ps check.Problems, topics []string, opt engine.Options[*sarama.ConsumerMessage]) (err error) {
	defer func() { err = engine.StartError(ctx, err) }()
	c.checkWithClient(&ps, topics, orders)
	if err := ps.Err(); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	client, err := openClient(ctx, c)
	if err != nil {
		return err
	}
	readers, err := client.openReaders(ctx, topics)
	if err == nil {
		var all sync.WaitGroup
		for _, r := range readers {
			all.Go(func() { r.Run(ctx, opt) })
		}
		all.Wait()
	}
	return errors.Join(err, mq.NewClient(client).Close(ctx))
}

// openReaders makes a reader for each topic. If it returns an error, it returns no reader.
func (c *client) openReaders(ctx context.Context, topics []string) ([]*reader.Reader, error) {
	if err := c.checkPolicyNames(topics...); err != nil {
		return nil, err
	}
	var readers []*reader.Reader
	var errs []error
	for _, topic := range topics {
		r, err := c.openReader(ctx, topic)
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
		r.Close()
	}
	return nil, engine.JoinErrors("kafka", errs)
}

// withClient adds the client's brokers and settings to the configuration of Consume, ConsumeBatch or Wrap. It also
// returns the problems of the call that checkWithClient does not find.
func (c Config) withClient(client sarama.Client, topics []string, handlerMissing bool) (_ Config, ps check.Problems) {
	if len(c.Brokers) > 0 {
		ps.Add("Brokers", c.Brokers, "must be empty: the client says where the brokers are")
	}
	if c.Sarama != nil {
		ps.Add("Sarama", "set", "must be nil: the client's configuration is used")
	}
	ps = append(ps, (&rules.Call{Kind: "topic", Names: topics, CheckName: kafkaname.CheckTopic, HandlerMissing: handlerMissing, Marshaler: c.Marshaler, NackDelay: c.NackDelay}).Check()...)
	c.Brokers, c.Sarama, c.NackDelay = nil, nil, 0
	switch {
	case client == nil:
		rules.Require(&ps, "client", false)
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

// checkWithClient adds the problems of c, which withClient returned, so that one error lists all problems. It cannot
// check the settings of a missing client.
func (c Config) checkWithClient(ps *check.Problems, topics []string, allowed []redeliver.Order) {
	hasClient := c.Sarama != nil
	c = c.withDefaults()
	c.check(ps, allowed)
	if hasClient {
		c.checkGroupConfig(ps)
	}
	if hasClient && slices.Contains(allowed, redeliver.OrderThroughRetries) {
		c.checkPerKey(ps)
	}
	for i, topic := range topics {
		var reported check.Problems // these are reported already
		kafkaname.CheckTopic(&reported, "", topic)
		kafkaname.CheckGroup(&reported, "", c.Group)
		if reported == nil && !slices.Contains(topics[:i], topic) {
			c.names().Check(ps, topic, c.Group)
		}
	}
}

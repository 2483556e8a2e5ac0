package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// BroadcastConfig says how a service reads topics without a group. Brokers is
// required.
type BroadcastConfig struct {
	// Brokers are the bootstrap brokers, "host:port". Required.
	Brokers []string
	// Policy is for every topic. What it says of attempts holds: Timeout, Immediate,
	// Invalid, Classify, ErrorText, and of Order KeyOrder (the default) and Unordered.
	// There are no other retries: MaxRetries, Backoff and Levels must be left alone.
	Policy redeliver.Policy
	// MaxInFlight bounds how many messages of one Subscribe run at once. Ten times as
	// many are in hand at most, those included that wait for their key. Default 100.
	MaxInFlight int
	// DrainTimeout bounds how long handlers may finish when the consumer closes;
	// then their contexts are cancelled. Default 10 s.
	DrainTimeout time.Duration
	// Marshaler turns records into Watermill messages. Default: DefaultMarshaler.
	Marshaler Marshaler
	// Sink is told what happens. Default: NewSlogSink(nil).
	Sink redeliver.Sink
	// Tracer puts spans around handlers, see observe/otel. Default: none.
	Tracer redeliver.Tracer
	// Sarama is the client's configuration: TLS, SASL, version, and with
	// Consumer.Offsets.Initial where each Subscribe begins. It is copied. Default:
	// sarama.NewConfig(), which begins with what is written from then on (Newest).
	Sarama *sarama.Config
}

func (c BroadcastConfig) withDefaults() BroadcastConfig {
	if c.MaxInFlight == 0 {
		c.MaxInFlight = DefaultMaxInFlight
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	if c.Marshaler == nil {
		c.Marshaler = DefaultMarshaler{}
	}
	if c.Sink == nil {
		c.Sink = redeliver.NewSlogSink(slog.Default())
	}
	if c.Sarama == nil {
		c.Sarama = sarama.NewConfig()
	}
	return c
}

// validate returns all problems at once, and the policy as it is run. c has its
// defaults.
func (c BroadcastConfig) validate() (redeliver.Policy, error) {
	var ps redeliver.Problems
	if len(c.Brokers) == 0 {
		ps.Add("Brokers", "empty", "is required: host:port of at least one broker")
	}
	for i, b := range c.Brokers {
		checkBroker(&ps, fmt.Sprintf("Brokers[%d]", i), b)
	}
	policy := delayqueue.BroadcastPolicy(&ps, "Policy", c.Policy)
	ps.Count("MaxInFlight", c.MaxInFlight, 1, 0)
	ps.Duration("DrainTimeout", c.DrainTimeout, time.Nanosecond, 0)
	if err := c.saramaConfig().Validate(); err != nil {
		ps.Add("Sarama", "invalid", err.Error())
	}
	return policy, ps.Err()
}

func (c BroadcastConfig) saramaConfig() *sarama.Config {
	cfg := Config{Sarama: c.Sarama}.clientConfig()
	cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	cfg.Consumer.Return.Errors = true
	return cfg
}

// Broadcast is a Watermill subscriber without a group: every process that has one
// gets every message (RocketMQ's BROADCASTING), as caches and configurations want it.
// It is safe for concurrent use.
//
//	prices, err := kafka.OpenBroadcast(ctx, kafka.BroadcastConfig{Brokers: brokers})
//	router.AddConsumerHandler("refresh", "prices", prices, refresh)
//
// Messages of one key run one after another. One that fails (its handler returns an
// error, panics, or outlives the policy's Timeout) is told of, as
// redeliver.BroadcastFailed, after the policy's Immediate tries, and the next goes on:
// it is not written anywhere. Nothing is committed: each Subscribe begins where
// Consumer.Offsets.Initial says, so what was written while a process was away it
// never sees, unless it begins at the oldest. While the brokers are away it is
// waited for, and nothing is missed that they still have.
//
// It writes nothing and creates no topic; the user needs Read and Describe on the
// topics. middleware.Retry is refused around it, see middleware.AllowBroadcast, and
// so is middleware.Receiver.
type Broadcast struct {
	cfg     BroadcastConfig
	policy  redeliver.Policy
	client  sarama.Client
	readers *delayqueue.Readers
	calls   sync.WaitGroup // of sarama, which goes on with them when their readers have ended

	lookEvery time.Duration // for new partitions
}

var _ message.Subscriber = (*Broadcast)(nil)

// OpenBroadcast checks the configuration and connects. All problems of the
// configuration are in one redeliver.ConfigError. A cluster of which no broker
// answers is an error within the dial timeout (Sarama.Net.DialTimeout, default 10 s)
// or when ctx ends.
func OpenBroadcast(ctx context.Context, cfg BroadcastConfig) (*Broadcast, error) {
	cfg = cfg.withDefaults()
	policy, err := cfg.validate()
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	client, err := dial(ctx, cfg.Brokers, cfg.saramaConfig())
	if err != nil {
		return nil, err
	}
	return &Broadcast{
		cfg: cfg, policy: policy, client: client, lookEvery: lookForPartitions,
		readers: delayqueue.NewReaders(errors.New("kafka: the broadcast consumer is closed")),
	}, nil
}

// Subscribe reads all partitions of a topic, which must exist, and delivers messages
// until ctx ends or the consumer is closed. Where it begins is settled when it
// returns. Partitions that the topic gets later are found within a minute and read
// from their start.
//
// A message is done when it is acked; one that is nacked has failed.
func (b *Broadcast) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	var ps redeliver.Problems
	checkTopic(&ps, "topic", topic)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	var out chan *message.Message
	err := b.readers.Begin(ctx, func(ctx context.Context) (func(context.Context), error) {
		r, err := until(ctx, b.calls.Go, func() (*broadcastReader, error) { return b.reader(ctx, topic) }, (*broadcastReader).close)
		if err != nil {
			return nil, err
		}
		out = r.air.Out
		return r.run, nil
	})
	return out, err
}

// Close ends all subscriptions, waits until their handlers are done or the drain
// timeout is over, and disconnects. Where brokers do not answer that takes DrainTimeout
// and the dial timeout (Sarama.Net.DialTimeout) together at most: then it is an error,
// and goes on in the background. A second Close does nothing.
func (b *Broadcast) Close() error {
	most := b.cfg.DrainTimeout + b.client.Config().Net.DialTimeout
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	var first bool
	var failed error
	shut := func(r *delayqueue.Readers) { first = r.Close() }
	if err := delayqueue.CloseAll(ctx, []*delayqueue.Readers{b.readers}, shut, func() {
		if first {
			b.calls.Wait()
			failed = b.client.Close()
		}
	}); err != nil {
		return fmt.Errorf("kafka: closing: %w after %s (DrainTimeout and Sarama.Net.DialTimeout); see whether brokers %v answer. It goes on in the background",
			err, most, b.cfg.Brokers)
	}
	if failed != nil {
		return fmt.Errorf("kafka: disconnecting: %w", failed)
	}
	return nil
}

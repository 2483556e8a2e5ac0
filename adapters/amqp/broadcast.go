package amqp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// BroadcastConfig says how a service reads exchanges with a queue for each process.
// URLs is required.
type BroadcastConfig struct {
	// URLs are the brokers, "amqp://user:password@host:5672/vhost" or amqps,
	// tried in turn. Required.
	URLs []string
	// Topology says to which exchange a topic's queue is bound, and with which keys:
	// Exchange, Kind, RoutingKey, BindingKeys and BindingArgs. The exchange is
	// declared unless Existing says that it is there. QueueArgs are the arguments of
	// the queue (x-max-length, say, for processes that are slow). Queue must be nil.
	// Default: a fanout exchange of the topic's name, as [PubSub] has it.
	Topology Topology
	// Policy is for every topic. What it says of attempts holds: Timeout, Immediate,
	// Invalid, Classify, ErrorText. There are no other retries: MaxRetries, Backoff
	// and Levels must be left alone.
	Policy redeliver.Policy
	// MaxInFlight bounds how many messages of one Subscribe run at once, and how many
	// the broker sends. Default 100, at most 65,535.
	MaxInFlight int
	// DrainTimeout bounds how long handlers may finish when the consumer closes;
	// then their contexts are cancelled. Default 10 s.
	DrainTimeout time.Duration
	// DialTimeout bounds one try to connect. Default 10 s.
	DialTimeout time.Duration
	// Marshaler turns deliveries into Watermill messages. Default: DefaultMarshaler.
	Marshaler Marshaler
	// Sink is told what happens. Default: NewSlogSink.
	Sink redeliver.Sink
	// Tracer puts spans around handlers, see observe/otel. Default: none.
	Tracer redeliver.Tracer
	// AMQP is the client's configuration, as in Config.
	AMQP amqp.Config
}

func (c BroadcastConfig) withDefaults() BroadcastConfig {
	if c.MaxInFlight == 0 {
		c.MaxInFlight = DefaultMaxInFlight
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = DefaultDialTimeout
	}
	if c.Marshaler == nil {
		c.Marshaler = DefaultMarshaler{}
	}
	if c.Sink == nil {
		c.Sink = redeliver.NewSlogSink(slog.Default())
	}
	if c.Topology.Exchange == nil {
		c.Topology.Exchange = func(topic string) string { return topic }
	}
	return c
}

// validate returns all problems at once, and the policy as it is run. c has its
// defaults.
func (c BroadcastConfig) validate() (redeliver.Policy, error) {
	var ps redeliver.Problems
	checkURLs(&ps, c.URLs)
	if c.Topology.Queue != nil {
		ps.Add("Topology.Queue", "set", "must be nil: each process has a queue of its own, which is gone when it is")
	}
	c.Topology.check(&ps)
	policy := delayqueue.BroadcastPolicy(&ps, "Policy", c.Policy)
	ps.Count("MaxInFlight", c.MaxInFlight, 1, maxPrefetch)
	ps.Duration("DrainTimeout", c.DrainTimeout, time.Nanosecond, 0)
	ps.Duration("DialTimeout", c.DialTimeout, time.Nanosecond, 0)
	checkRecovery(&ps, c.AMQP)
	return policy, ps.Err()
}

// Broadcast is a Watermill subscriber with a queue for each process: all of them
// get every message (RocketMQ's BROADCASTING), as caches and configurations want it.
// It is safe for concurrent use.
//
//	prices, err := amqp.OpenBroadcast(ctx, amqp.BroadcastConfig{URLs: urls})
//	router.AddConsumerHandler("refresh", "prices", prices, refresh)
//
// Each Subscribe declares a queue "<topic>.broadcast.<random>", exclusive and
// auto-deleted, and binds it to the topic's exchange. A message that fails (its
// handler returns an error, panics, or outlives the policy's Timeout) is told of, as
// redeliver.BroadcastFailed, after the policy's Immediate tries, and the next goes on:
// it is not written anywhere. The queue is gone when the process or its connection
// is; what is published until there is another one, the process never sees, and the
// event "disconnected" says so.
//
// The user needs configure, write and read on queues that begin with
// "<topic>.broadcast.", read on the exchange, and configure on it unless it exists.
// middleware.Retry is refused around it, see middleware.AllowBroadcast, and so is
// middleware.Receiver.
type Broadcast struct {
	cfg     BroadcastConfig
	policy  redeliver.Policy
	link    *link
	readers *delayqueue.Readers
}

var _ message.Subscriber = (*Broadcast)(nil)

// OpenBroadcast checks the configuration and connects. All problems of the
// configuration are in one redeliver.ConfigError. Brokers that do not answer are an
// error within DialTimeout for each, or when ctx ends.
func OpenBroadcast(ctx context.Context, cfg BroadcastConfig) (*Broadcast, error) {
	cfg = cfg.withDefaults()
	policy, err := cfg.validate()
	if err != nil {
		return nil, fmt.Errorf("amqp: %w", err)
	}
	b := &Broadcast{cfg: cfg, policy: policy, readers: delayqueue.NewReaders(errors.New("amqp: the broadcast consumer is closed")), link: &link{
		cfg:  &Config{URLs: cfg.URLs, AMQP: cfg.AMQP, DialTimeout: cfg.DialTimeout},
		name: "redeliver, broadcast", reads: true,
	}}
	if _, err := b.link.get(ctx); err != nil {
		return nil, fmt.Errorf("%w; check the address, the user, the virtual host and TLS", err)
	}
	return b, nil
}

// Subscribe declares a queue and binds it to the topic's exchange, and delivers what
// is published from then on until ctx ends or the consumer is closed.
//
// A message is done when it is acked; one that is nacked has failed.
func (b *Broadcast) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	var out chan *message.Message
	err := b.readers.Begin(ctx, func(ctx context.Context) (func(context.Context), error) {
		r := b.reader(ctx, topic)
		in, err := r.open(ctx)
		if err != nil {
			return nil, err
		}
		out = r.air.Out
		return func(ctx context.Context) { r.run(ctx, in) }, nil
	})
	return out, err
}

// Close ends all subscriptions, waits until their handlers are done or the drain
// timeout is over, and disconnects. A second Close does nothing.
func (b *Broadcast) Close() error {
	b.readers.Close()
	b.link.close()
	return nil
}

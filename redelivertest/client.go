package redelivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/mq"
	"github.com/redeliver/redeliver/observe"
)

// Config configures how a service takes part in a group. Its fields have the same meaning as in the
// adapters of real brokers. Group is required.
type Config struct {
	// Group is the consumer group. Required.
	Group string
	// Policy applies to every topic that Topics does not name. Default: the zero Policy, three retries
	// after 1, 2 and 4 s plus jitter.
	Policy redeliver.Policy
	// Topics are the policies of single topics. Default: none.
	Topics map[string]redeliver.Policy
	// MaxInFlight bounds how many first deliveries of one Subscribe run at once. As many retries may
	// run in addition. Default 100.
	MaxInFlight int
	// MinInFlight lets the number of messages in flight shrink while messages fail. After every second
	// in which at least half of the messages failed, a limit for first deliveries and retries together
	// is halved, down to MinInFlight. It grows back when messages succeed. Failures that are the
	// message's own fault (permanent, rejected, undecodable) do not count, but postponed messages do.
	// At most MaxInFlight. Default 0: nothing shrinks.
	MinInFlight int
	// NackDelay is how long a message waits after a nack without an error, for example because the
	// publisher of a Router failed. The nack counts as an attempt. Default: the policy's delay for an
	// error.
	NackDelay time.Duration
	// DrainTimeout bounds how long handlers have to finish when the subscriber closes. After that
	// their contexts are cancelled, and their messages come back. Default 10 s.
	DrainTimeout time.Duration
	// SendTimeout bounds one try to write a message. Default 30 s.
	SendTimeout time.Duration
	// DLQ configures the DLQ. With DLQ.Discard, a message that would go there is reported as
	// redeliver.Discarded. DLQ.Retention must be 0. Default: it keeps its messages.
	DLQ deadletter.Config
	// Decode gets each message before its handler, and may change it. An error, or a panic, sends
	// the message as it was to the DLQ, undecodable. It must be safe for concurrent use. Default:
	// it accepts all messages.
	Decode func(*message.Message) error
	// Sink receives the events. Default: none.
	Sink redeliver.Sink
	// Tracer puts spans around handlers, see observe/otel. Default: none.
	Tracer observe.Tracer
}

func (c Config) withDefaults() Config {
	c.common().SetDefaults()
	return c
}

// common returns the fields that the adapters have, too.
func (c *Config) common() *rules.Common {
	return &rules.Common{
		Policy: &c.Policy, Topics: c.Topics, MaxInFlight: &c.MaxInFlight, MinInFlight: &c.MinInFlight,
		NackDelay: &c.NackDelay, DrainTimeout: &c.DrainTimeout, SendTimeout: &c.SendTimeout,
	}
}

func (c Config) policy(topic string) redeliver.Policy {
	p, _ := c.common().PolicyOf(topic)
	return p
}

func (c Config) validate() error {
	var ps check.Problems
	rules.RequireGroup(&ps, "Group", c.Group)
	c.common().Check(&ps, rules.Limits{})
	if c.DLQ.Retention != 0 {
		ps.Add("DLQ.Retention", c.DLQ.Retention, "must be 0: the broker in memory keeps everything")
	}
	return ps.Err()
}

// Client makes a service a member of a group. It is the same as on a real broker ([mq.Client]), with what a test needs. It is safe
// for concurrent use.
type Client struct {
	*mq.Client

	service *memberClient
}

// memberClient implements [mq.Broker].
type memberClient struct {
	b   *Broker
	cfg Config

	// The broker's mu guards the following fields.
	closing, closed, killed bool

	running int   // on all its subscriptions
	alone   *item // the suspect that is running
}

// Open opens a service of a group. It fails the test if the configuration cannot work, with all
// problems at once. The end of the test closes it.
func (b *Broker) Open(cfg Config) *Client {
	b.tb.Helper()
	c, err := b.newClient(cfg)
	if err != nil {
		b.tb.Fatal(err)
	}
	b.tb.Cleanup(func() { _ = c.Close(context.Background()) }) // Close returns no error here
	return c
}

func (b *Broker) newClient(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("redelivertest: %w", err)
	}
	c := &memberClient{b: b, cfg: cfg}
	return &Client{mq.NewClient(c), c}, nil
}

// Options implements [mq.Broker].
func (c *memberClient) Options() mq.BrokerOptions {
	const test = "a test looks at the Subscription"
	return mq.BrokerOptions{Name: "redelivertest", Subscription: "group " + c.cfg.Group, DrainTimeout: c.cfg.DrainTimeout, SendTimeout: c.cfg.SendTimeout, Unsupported: map[string]string{
		"DeadLetters": test, "DeadLetterQueues": test, "Doctor": test, "Waiting": test, "WaitingLevels": test, "Release": test,
	}}
}

// Plan implements [mq.Broker].
func (c *memberClient) Plan(context.Context, string) (*mq.Plan, error) {
	return nil, fmt.Errorf("redelivertest: Plan is %w: the broker in memory can hold every policy", mq.ErrUnsupported)
}

// BeginClose implements [mq.Broker].
func (c *memberClient) BeginClose() {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.closing = true
}

// Disconnect implements [mq.Broker].
func (c *memberClient) Disconnect() {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.closed = true
}

var (
	errClosed = errors.New("redelivertest: the client is closed")
	errKilled = errors.New("redelivertest: the client was killed")
)

// checkOpenLocked returns an error if the client has ended.
func (c *memberClient) checkOpenLocked() error {
	switch {
	case c.killed:
		return errKilled
	case c.closed:
		return errClosed
	default:
		return nil
	}
}

// recorder returns the sink of a subscription. It records each event and passes it on.
func (c *memberClient) recorder(q *queue) redeliver.Sink {
	recorder := redeliver.SinkFunc(func(e redeliver.Event) {
		c.b.mu.Lock()
		dead := c.killed
		if !dead {
			q.events = append(q.events, timedEvent{time.Now(), e})
		}
		c.b.mu.Unlock()
		if !dead && c.cfg.Sink != nil {
			c.cfg.Sink.Event(e)
		}
	})
	if w, ok := c.cfg.Sink.(observe.LoadSink); ok {
		return &watching{recorder, w}
	}
	return recorder
}

// watching makes a sink a [observe.LoadSink].
type watching struct {
	redeliver.Sink

	by observe.LoadSink
}

// Watch implements [observe.LoadSink].
func (w *watching) Watch(origin, group string, load func() observe.Load) (end func()) {
	return w.by.Watch(origin, group, load)
}

package mq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/internal/engine"
)

// ErrClosed is the error of Subscribe after the subscriber or its client was closed.
var ErrClosed = errors.New("closed")

// Client takes part in a group of consumers. It owns the connections to the broker, and everything that is opened from it. The Open
// function of an adapter returns it. It is safe for concurrent use.
type Client struct {
	broker  Broker
	options BrokerOptions

	mu     sync.Mutex
	subs   []*Subscriber
	closed bool
}

// Broker is what an adapter implements for a Client. A broker may implement [DeadLetterer], [Pauser], [NewPauser], [Examiner] and
// [Waiter], too.
type Broker interface {
	// Options returns what a Client needs to know. It is called once.
	Options() BrokerOptions
	// Subscribe implements Subscriber.Subscribe. It creates or checks what the topic needs, and returns the channel of messages and
	// the function that delivers them until its context ends.
	Subscribe(ctx context.Context, topic string) (messages <-chan *message.Message, deliver func(context.Context), err error)
	// Initialize implements Subscriber.SubscribeInitialize.
	Initialize(topic string) error
	// Publish implements Publisher.Publish.
	Publish(topic string, messages ...*message.Message) error
	// Plan implements Client.Plan.
	Plan(ctx context.Context, topic string) (*Plan, error)
	// BeginClose is called when the client begins to close. Nothing new may begin.
	BeginClose()
	// Disconnect closes the connections. It is called when all subscribers have ended.
	Disconnect()
}

// BrokerOptions are constants of a Broker.
type BrokerOptions struct {
	// Name begins the errors of the client, such as "kafka".
	Name string
	// Subscription describes the group and the broker in errors, such as "group billing on [localhost:9092]".
	Subscription string
	// DrainTimeout and SendTimeout are those of the adapter's Config. They bound Close.
	DrainTimeout, SendTimeout time.Duration
	// Unsupported says why an operation is not supported, by its name, such as "Pause".
	Unsupported map[string]string
}

// NewClient returns the client of a broker. Adapters call it.
func NewClient(b Broker) *Client { return &Client{broker: b, options: b.Options()} }

// OpenClient returns the client of a broker that was opened, or the error of that. The Open of an adapter ends with it.
func OpenClient[B Broker](b B, err error) (*Client, error) {
	if err != nil {
		return nil, err
	}
	return NewClient(b), nil
}

// Broker returns what the adapter gave to NewClient. Adapters need it for what only one broker has.
func (c *Client) Broker() Broker { return c.broker }

// Subscriber returns a Watermill subscriber of the client's group. Closing it, as a Router does, ends its subscriptions. The client
// and other subscribers stay open.
func (c *Client) Subscriber() *Subscriber {
	s := &Subscriber{client: c, readers: engine.NewReaders(fmt.Errorf("%s: %w: the subscriber was closed", c.options.Name, ErrClosed))}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs = append(c.subs, s)
	return s
}

// Publisher returns a Watermill publisher. It publishes until the client is closed. Closing the publisher, as a Router does, has no
// effect.
func (c *Client) Publisher() *Publisher { return &Publisher{client: c} }

// Plan compares the broker with the policy and returns what Subscribe would use and create, without creating anything. It returns the
// same error as Subscribe: a policy that the broker cannot hold is refused, with all problems in one redeliver.ConfigError. With
// Config.NoProvisioning, RabbitMQ returns the plan together with that error, because the plan lists the queues to create.
func (c *Client) Plan(ctx context.Context, topic string) (*Plan, error) {
	return c.broker.Plan(ctx, topic)
}

// Operations returns what an operator needs.
func (c *Client) Operations() *Operations { return &Operations{client: c} }

// Close ends all subscribers, waits until their handlers have returned or the drain timeout is over, finishes the writes that have
// begun, and disconnects. If ctx ends meanwhile, Close returns an error that wraps ctx's error, and continues in the background.
// Nothing is lost in either case. If ctx had already ended, Close waits for at most Config.DrainTimeout and Config.SendTimeout
// together. A second Close does nothing.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	subs, wasClosed := c.subs, c.closed
	c.closed = true
	c.mu.Unlock()
	if wasClosed {
		return nil
	}
	c.broker.BeginClose()
	var limit string // appended to the error when Close set the limit itself
	if ctx.Err() != nil {
		maxWait := c.options.DrainTimeout + c.options.SendTimeout
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), maxWait)
		defer cancel()
		limit = fmt.Sprintf(" after %s (DrainTimeout and SendTimeout)", maxWait)
	}
	var open atomic.Int64
	open.Store(int64(len(subs)))
	done := make(chan struct{})
	go func() {
		defer close(done)
		var all sync.WaitGroup
		for _, s := range subs {
			all.Go(func() {
				_ = s.Close() // always nil
				open.Add(-1)
			})
		}
		all.Wait()
		c.broker.Disconnect()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	pending := "the writer still waits for answers of the broker"
	if n := open.Load(); n > 0 {
		pending = fmt.Sprintf("%d of %d subscribers have not drained, %s", n, len(subs), c.options.Subscription)
	}
	return fmt.Errorf("%s: closing: %w%s: %s; check whether the broker answers, and which handlers still run. Close continues in the background, and nothing is lost: unacked messages come back",
		c.options.Name, ctx.Err(), limit, pending)
}

// Subscriber delivers the messages of topics to the client's group. It is a Watermill subscriber and safe for concurrent use.
type Subscriber struct {
	client  *Client
	readers *engine.Readers
}

// Subscribe creates or checks what a topic needs, reads it and its retries, and delivers messages until ctx ends or the subscriber is
// closed. Every call is a consumer of its own.
//
// Up to Config.MaxInFlight first deliveries and Config.MaxRetriesInFlight retries run at once, in the order of Policy.Order. A message
// is done when it is acked. A nacked message has failed an attempt, and the policy decides as after an error.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	var out <-chan *message.Message
	err := s.readers.Begin(ctx, func(ctx context.Context) (deliver func(context.Context), err error) {
		out, deliver, err = s.client.broker.Subscribe(ctx, topic)
		return deliver, err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// SubscribeInitialize creates what a subscription of the topic needs, the topic or queue included. Watermill's components call it.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	return s.client.broker.Initialize(topic)
}

// Close ends all subscriptions and returns when their channels are closed. It waits for messages in flight, up to Config.DrainTimeout.
// After that their contexts are cancelled, and they stay unacked.
func (s *Subscriber) Close() error {
	s.readers.Close()
	return nil
}

// Publisher writes messages. It is a Watermill publisher and safe for concurrent use.
type Publisher struct{ client *Client }

// Publish writes the messages and returns when the broker has confirmed all of them. The error names each message that could not be
// prepared (by the marshaler, for example) or that the broker refused, as in "message 2 of 3". The others are written anyway. Publish
// reads only the key (SetKey) from the messages' contexts. It waits for at most Config.SendTimeout.
//
// A message with Watermill's delay metadata (package components/delay) waits as a retry of the client's group does. When it is due,
// it is published to the topic, for all groups. A member of the client's group that subscribes to the topic does that. Without such
// a member the message waits, and is published late when there is one.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	return p.client.broker.Publish(topic, messages...)
}

// Close implements message.Publisher and does nothing, because a Router calls it while handlers still run and publish. Client.Close
// ends the publisher.
func (p *Publisher) Close() error { return nil }

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
	_ message.Publisher            = (*Publisher)(nil)
)

package pubsub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/mq"
)

// client makes a service a member of a group. It is safe for concurrent use.
type client struct {
	cfg Config

	mu     sync.Mutex
	closed bool

	policyNames engine.PolicyNames

	preparing sync.Mutex         // one topic at a time
	layouts   map[string]*layout // ready ones, by topic; guarded by preparing
}

// onlyWatermill says why there are no operations.
const onlyWatermill = "a Watermill Pub/Sub can publish and subscribe only"

var errClosed = errors.New("pubsub: the client is closed")

// Open checks the configuration and returns a Client. All problems are in one
// redeliver.ConfigError. It refuses a ctx that has ended. It does not use the Pub/Sub; [Check]
// does.
func Open(ctx context.Context, cfg Config) (*mq.Client, error) {
	return mq.OpenClient(openClient(ctx, cfg))
}

// openClient checks the configuration and connects.
func openClient(ctx context.Context, cfg Config) (*client, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("pubsub: opening: %w", err)
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	return &client{cfg: cfg, layouts: make(map[string]*layout)}, nil
}

func (c *client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// readyLayout returns the layout of a topic after it has initialized redeliver's topics.
func (c *client) readyLayout(topic string) (*layout, error) {
	c.preparing.Lock()
	defer c.preparing.Unlock()
	if c.isClosed() {
		return nil, errClosed
	}
	if l := c.layouts[topic]; l != nil {
		return l, nil
	}
	l, err := newLayout(&c.cfg, topic)
	if err != nil {
		return nil, err
	}
	if err := engine.CheckDistinct("pubsub", l, maps.Values(c.layouts)); err != nil {
		return nil, err
	}
	if init, ok := c.cfg.Subscriber.(message.SubscribeInitializer); ok && !c.cfg.NoProvisioning {
		for _, name := range l.ownTopics() {
			if err := init.SubscribeInitialize(name); err != nil {
				return nil, fmt.Errorf("pubsub: the subscriber cannot initialize %s; create redeliver's topics and set NoProvisioning, or give it the missing rights: %w", name, err)
			}
		}
	}
	c.layouts[topic] = l
	return l, nil
}

// Options implements [mq.Broker].
func (c *client) Options() mq.BrokerOptions {
	return mq.BrokerOptions{Name: "pubsub", Subscription: "group " + c.cfg.Group, DrainTimeout: c.cfg.DrainTimeout, SendTimeout: c.cfg.SendTimeout, Unsupported: map[string]string{
		"DeadLetters": onlyWatermill, "DeadLetterQueues": onlyWatermill, "Doctor": onlyWatermill, "Waiting": onlyWatermill, "WaitingLevels": onlyWatermill,
		"Release": onlyWatermill, "Pause": onlyWatermill, "PauseNew": onlyWatermill, "Resume": onlyWatermill, "Paused": onlyWatermill,
	}}
}

// BeginClose implements [mq.Broker].
func (c *client) BeginClose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// Disconnect implements [mq.Broker]. The user's publisher and subscriber stay open.
func (c *client) Disconnect() {}

// Plan implements [mq.Broker].
func (c *client) Plan(context.Context, string) (*mq.Plan, error) {
	return nil, fmt.Errorf("pubsub: Plan is %w: %s; see Check", mq.ErrUnsupported, onlyWatermill)
}

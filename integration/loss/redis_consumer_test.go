package loss

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/redeliver/redeliver/adapters/pubsub"
	"github.com/redeliver/redeliver/integration/consumer"
	"github.com/redeliver/redeliver/integration/redis/alive"
	"github.com/redeliver/redeliver/mq"
)

const (
	redisInFlight = 20
	// redisLife is how long a killed consumer keeps its messages: longer than Redis is ever away.
	redisLife = 6 * time.Second
)

// connectRedis opens the adapter on stock watermill-redisstream, with a client whose commands the watcher sees.
func connectRedis(ctx context.Context, cfg consumerConfig, s *watcher) (consumer.Client, error) {
	r := &redisSubscriber{open: func(ctx context.Context) (*mq.Subscriber, func(context.Context) error, error) {
		return openRedis(ctx, cfg, s)
	}}
	var err error
	r.sub, r.end, err = r.open(ctx)
	return consumer.Client{Subscriber: r, End: func(ctx context.Context) error { return r.end(ctx) }}, err
}

// openRedis opens a consumer of Redis with a unique name.
func openRedis(ctx context.Context, cfg consumerConfig, s *watcher) (*mq.Subscriber, func(context.Context) error, error) {
	client := redis.NewClient(&redis.Options{Addr: cfg.Load.reach(cfg.Addrs[0]), PoolSize: 4 * max(cfg.Load.InFlight, redisInFlight)})
	client.AddHook(newRedisHook(s, cfg.Topic))
	name := fmt.Sprintf("%d-%s", os.Getpid(), watermill.NewShortUUID())
	beating, still := context.WithCancel(context.Background())
	for {
		err := alive.Keep(beating, client, name, redisLife)
		if err == nil {
			break
		}
		if err := consumer.PauseBeforeRetry(ctx, err); err != nil {
			still()
			return nil, nil, err
		}
	}
	log := watermill.NopLogger{}
	pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, log)
	if err != nil {
		still()
		return nil, nil, err
	}
	sub, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: client, ConsumerGroup: cfg.Group, Consumer: name, BlockTime: 500 * time.Millisecond, DisableIndefiniteInitialBlock: true,
		ClaimInterval: time.Second, MaxIdleTime: time.Second, ShouldClaimPendingMessage: alive.Claimable(client, name),
	}, log)
	if err != nil {
		still()
		return nil, nil, err
	}
	c, err := pubsub.Open(ctx, pubsub.Config{
		Publisher: pub, Subscriber: sub, Group: cfg.Group, Confirms: true, MaxUnacked: time.Hour, Policy: cfg.policy(), Sink: s,
		MaxInFlight: cmp.Or(cfg.Load.InFlight, redisInFlight), DrainTimeout: 2 * time.Second, SendTimeout: cfg.Load.SendTimeout,
	})
	if err != nil {
		still()
		return nil, nil, err
	}
	return c.Subscriber(), func(ctx context.Context) error {
		defer still()
		defer client.Close()
		return c.Close(ctx)
	}, nil
}

// redisSubscriber subscribes again, as a new consumer, after Redis was away. Messages that a failed Subscribe had read
// belong to the old consumer, which must be dead for others to take them.
type redisSubscriber struct {
	open func(context.Context) (*mq.Subscriber, func(context.Context) error, error)
	sub  *mq.Subscriber
	end  func(context.Context) error
}

// Close implements [message.Subscriber].
func (r *redisSubscriber) Close() error { return r.sub.Close() }

func (r *redisSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	for {
		out, err := r.sub.Subscribe(ctx, topic)
		if err == nil {
			return out, nil
		}
		if err := consumer.PauseBeforeRetry(ctx, err); err != nil {
			return nil, err
		}
		if err := r.end(ctx); err != nil {
			return nil, err
		}
		if r.sub, r.end, err = r.open(ctx); err != nil {
			return nil, err
		}
	}
}

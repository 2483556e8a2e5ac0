package loss

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
)

// How many messages a consumer of RabbitMQ has in hand at most.
const (
	rabbitInFlight = 20
	rabbitPrefetch = rabbitInFlight     // of the queue
	rabbitRetries  = 2 * rabbitInFlight // of those that come back
	rabbitInHand   = rabbitPrefetch + rabbitRetries + 1
)

// connectRabbitMQ opens the adapter with connections whose frames the spy sees.
func connectRabbitMQ(ctx context.Context, cfg consumerConfig, s *spy) (message.Subscriber, func(context.Context) error, error) {
	policy := cfg.policy()
	// Kills at random may hit a suspect that runs alone, which is charged then, and rightly: the adapter cannot know that
	// it was the suite. Twice the same one would be no chance. An innocent in the DLQ is found by the checker.
	policy.MaxCrashes = 2
	ac := amqp.Config{
		URLs: cfg.Addrs, Policy: policy, Sink: s, DrainTimeout: 2 * time.Second,
		MaxInFlight: rabbitInFlight, Prefetch: rabbitPrefetch, RetryPrefetch: rabbitRetries, SendTimeout: cfg.Strain.SendTimeout,
		AMQP: amqp091.Config{Heartbeat: cfg.Strain.Missed, Dial: func(network, addr string) (net.Conn, error) {
			const limit = 5 * time.Second
			c, err := net.DialTimeout(network, cfg.Strain.reach(addr), limit)
			if err != nil {
				return nil, err
			}
			return newRabbitConn(c, s, cfg.Topic), c.SetDeadline(time.Now().Add(limit)) // the client lifts it
		}},
	}
	if n := cfg.Strain.InFlight; n > 0 {
		ac.MaxInFlight, ac.Prefetch, ac.RetryPrefetch = n, n, 2*n
	}
	// A service that starts while its broker is down is started again by whoever started it.
	for {
		client, err := amqp.Open(ctx, ac)
		if err == nil {
			return rabbitSubscriber{client.Subscriber()}, client.Close, nil
		}
		if err := again(ctx, err); err != nil {
			return nil, nil, err
		}
	}
}

// rabbitSubscriber tries again where the broker went down between Open and Subscribe.
type rabbitSubscriber struct{ *amqp.Subscriber }

func (r rabbitSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	for {
		out, err := r.Subscriber.Subscribe(ctx, topic)
		if err == nil {
			return out, nil
		}
		if err := again(ctx, err); err != nil {
			return nil, err
		}
	}
}

// again pauses before something that failed is tried again. It returns the error of what is not worth it.
func again(ctx context.Context, err error) error {
	if errors.Is(err, redeliver.ErrConfig) || ctx.Err() != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s %v\n", clock(), err)
	pause(ctx, 200*time.Millisecond)
	return nil
}

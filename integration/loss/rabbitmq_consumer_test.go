package loss

import (
	"context"
	"net"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/consumer"
)

// The maximum numbers of messages that a consumer of RabbitMQ has in hand.
const (
	rabbitInFlight = 20
	rabbitPrefetch = rabbitInFlight     // of the queue
	rabbitRetries  = 2 * rabbitInFlight // of messages that come back
	rabbitInHand   = rabbitPrefetch + rabbitRetries + 1
)

// connectRabbitMQ opens the adapter with connections whose frames the watcher sees.
func connectRabbitMQ(ctx context.Context, cfg consumerConfig, s *watcher) (consumer.Client, error) {
	policy := cfg.policy()
	// A random kill may hit a suspect that runs alone, which is then charged, because the adapter cannot know that it
	// was the suite. The suite does that at most once to each message (see [watcher.protect]). It may do it once more by
	// closing connections one after another, if the suspect comes to a process whose connection is closed next. A third
	// charge would be a fault of the adapter, and the checker finds an innocent message in the DLQ.
	policy.MaxCrashes = 3
	ac := amqp.Config{
		URLs: cfg.Addrs, Policy: policy, Sink: s, DrainTimeout: 2 * time.Second,
		MaxInFlight: rabbitInFlight, Prefetch: rabbitPrefetch, RetryPrefetch: rabbitRetries, SendTimeout: cfg.Load.SendTimeout,
		AMQP: amqp091.Config{Heartbeat: cfg.Load.Missed, Dial: func(network, addr string) (net.Conn, error) {
			const limit = 5 * time.Second
			c, err := net.DialTimeout(network, cfg.Load.reach(addr), limit)
			if err != nil {
				return nil, err
			}
			return newRabbitConn(c, s, cfg.Topic), c.SetDeadline(time.Now().Add(limit)) // the client removes it
		}},
	}
	if n := cfg.Load.InFlight; n > 0 {
		ac.MaxInFlight, ac.Prefetch, ac.RetryPrefetch = n, n, 2*n
	}
	return consumer.Open(ctx, func() (consumer.Client, error) {
		client, err := amqp.Open(ctx, ac)
		if err != nil {
			return consumer.Client{}, err
		}
		return consumer.Client{Subscriber: client.Subscriber(), End: client.Close}, nil
	})
}

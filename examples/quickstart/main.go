// Command quickstart is a service that charges orders, and a bank that has a bad
// day. This file is the service, to be copied; the other files are the show
// around it: the bank, the orders, a Kafka in this process, and the screen.
//
//	go run ./examples/quickstart                                  # a Kafka in this process
//	go run ./examples/quickstart --fresh                          # forget what was before
//	go run ./examples/quickstart --broker kafka://localhost:9092  # a real one
package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/middleware"
)

const topic, group = "demo-orders", "demo-billing"

var policy = redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Steps(1*time.Second, 2*time.Second, 4*time.Second)}

func main() { show(serve) }

// serve charges orders until ctx ends.
func serve(ctx context.Context, s *stage) error {
	billing, err := kafka.Open(ctx, kafka.Config{
		Brokers: s.brokers, Group: group, Policy: policy,
		Sarama: s.sarama, // optional: TLS, SASL and the like
		Sink:   s.screen, // optional: who is told what happens; the default is log/slog
	})
	if err != nil {
		return err
	}
	defer billing.Close(context.WithoutCancel(ctx))

	router, err := message.NewRouter(message.RouterConfig{}, s.log)
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("charge", topic, billing.Subscriber(), func(msg *message.Message) error {
		var o order
		if err := json.Unmarshal(msg.Payload, &o); err != nil {
			return redeliver.Permanent(err)
		}
		err := s.bank.charge(msg.Context(), o)
		var busy *busyError
		switch {
		case errors.Is(err, errNoSuchCard):
			return redeliver.Permanent(err) // no retry can help: to the DLQ, now
		case errors.As(err, &busy):
			return redeliver.RetryAfter(err, busy.retryAfter) // the bank said when
		default:
			return err // nil is done; for all other errors the policy decides
		}
	})
	return router.Run(ctx)
}

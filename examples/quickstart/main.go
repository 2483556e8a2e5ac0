// Command quickstart is a service that charges orders at a bank that often fails. Copy this file, which is the service.
// The other files are the demonstration: a Kafka in this process, the orders, the bank, and the screen.
//
//	go run ./examples/quickstart                                  # a Kafka in this process
//	go run ./examples/quickstart --fresh                          # without the data of earlier runs
//	go run ./examples/quickstart --broker kafka://localhost:9092  # another Kafka
package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/examples/internal/demo"
	"github.com/redeliver/redeliver/middleware"
)

const topic, group = "demo-orders", "demo-billing"

var policy = redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Steps(1*time.Second, 2*time.Second, 4*time.Second)}

func main() { runDemo(serve) }

// serve charges orders until ctx ends.
func serve(ctx context.Context, s *environment) error {
	billing, err := kafka.Open(ctx, kafka.Config{
		Brokers: s.brokers, Group: group, Policy: policy,
		Sarama: s.sarama, // optional: TLS, SASL and the like
		Sink:   s.screen, // optional: receives the events; the default writes to log/slog
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
		var o demo.Order
		if err := json.Unmarshal(msg.Payload, &o); err != nil {
			return redeliver.Permanent(err)
		}
		err := s.bank.charge(msg.Context(), o)
		var busy *demo.BusyError
		switch {
		case errors.Is(err, demo.ErrNoSuchCard):
			return redeliver.Permanent(err) // no retry can help: to the DLQ, now
		case errors.As(err, &busy):
			return redeliver.RetryAfter(err, busy.RetryAfter) // the bank said when
		default:
			return err // nil is done; for all other errors the policy decides
		}
	})
	return router.Run(ctx)
}

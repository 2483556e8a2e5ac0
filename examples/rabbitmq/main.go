// Command rabbitmq is a shop on RabbitMQ. It publishes orders to a topic exchange, and consumes them from a queue that
// is bound to it. Copy this file, which is the shop. The other files are the demonstration: orders, a bank that often
// fails, and the screen.
//
//	go run ./examples/rabbitmq                                            # a RabbitMQ on localhost
//	go run ./examples/rabbitmq --broker amqp://user:password@host/vhost   # another one
package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/examples/internal/demo"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/mq"
)

const exchange, queue = "demo-shop", "demo-orders"

func main() { runDemo() }

// shop is the service.
type shop struct {
	client *mq.Client
	router *message.Router
}

// open connects and adds the handlers. Exchange, queue and bindings are as in any program on RabbitMQ. redeliver
// declares them if they do not exist, and its own queues in addition.
func open(ctx context.Context, urls []string, sink redeliver.Sink, log watermill.LoggerAdapter) (*shop, error) {
	client, err := amqp.Open(ctx, amqp.Config{
		URLs: urls,
		Topology: amqp.Topology{
			Exchange:    func(string) string { return exchange },
			Kind:        "topic",
			BindingKeys: func(string) []string { return []string{"order.placed.*", "order.changed.eu"} },
		},
		Policy: redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Steps(1*time.Second, 2*time.Second, 4*time.Second)},
		Sink:   sink, // optional: receives the events; the default writes to log/slog
	})
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{}, log)
	if err != nil {
		return nil, errors.Join(err, client.Close(ctx))
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("charge", queue, client.Subscriber(), charge) // the topic is the queue
	return &shop{client, router}, nil
}

// place publishes an order. The topic is the routing key. If no queue is bound for it, place returns an error.
func (s *shop) place(routingKey, id string, body []byte) error {
	return s.client.Publisher().Publish(routingKey, message.NewMessage(id, body))
}

// charge handles an order. Its result decides what happens to the message.
func charge(msg *message.Message) error {
	var o demo.Order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return redeliver.Permanent(err) // no retry can help: to the DLQ, now
	}
	err := demo.Charge(msg.Context(), o)
	var busy *demo.BusyError
	switch {
	case errors.Is(err, demo.ErrNoSuchCard):
		return redeliver.Permanent(err)
	case errors.As(err, &busy):
		return redeliver.RetryAfter(err, busy.RetryAfter) // the bank said when
	default:
		return err // nil is an ack; for all other errors the policy decides
	}
}

// close ends the shop gracefully. Unfinished messages stay in the queue.
func (s *shop) close(ctx context.Context) error {
	return errors.Join(s.router.Close(), s.client.Close(ctx))
}

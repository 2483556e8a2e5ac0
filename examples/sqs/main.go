// Command sqs is a shop on Amazon SQS. It sends orders to a queue and consumes them. Copy this file, which is the shop.
// The other files are the demonstration: orders, a bank that often fails, and the screen.
//
//	go run ./examples/sqs                                      # an ElasticMQ on localhost
//	go run ./examples/sqs --broker sqs://eu-central-1          # AWS, with the keys of your environment or profile
package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/examples/internal/demo"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/mq"
)

const queue = "demo-orders"

func main() { runDemo() }

// shop is the service.
type shop struct {
	client *mq.Client
	router *message.Router
}

// open connects and adds the handlers. The queue is the service's own and keeps its attributes. If it does not exist,
// redeliver creates it. redeliver creates its own queues in addition.
func open(ctx context.Context, cfg *aws.Config, endpoint string, sink redeliver.Sink, log watermill.LoggerAdapter) (*shop, error) {
	client, err := sqs.Open(ctx, sqs.Config{
		AWS:      cfg,      // an *aws.Config; nil: config.LoadDefaultConfig
		Endpoint: endpoint, // a server in place of SQS, such as ElasticMQ; empty for AWS
		Policy:   redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Steps(1*time.Second, 2*time.Second, 4*time.Second)},
		Sink:     sink, // optional: receives the events; the default writes to log/slog
	})
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{}, log)
	if err != nil {
		return nil, errors.Join(err, client.Close(ctx))
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("charge", queue, client.Subscriber(), charge) // the topic is the queue: its name, URL or ARN
	return &shop{client, router}, nil
}

// place sends an order. Its metadata are message attributes. Any other program may also send to the queue, with any
// client of SQS.
func (s *shop) place(kind, id string, body []byte) error {
	msg := message.NewMessage(id, body)
	msg.Metadata.Set("kind", kind)
	return s.client.Publisher().Publish(queue, msg)
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
		return err // nil deletes the message; for all other errors the policy decides
	}
}

// close ends the shop gracefully. Unfinished messages stay in the queue.
func (s *shop) close(ctx context.Context) error {
	return errors.Join(s.router.Close(), s.client.Close(ctx))
}

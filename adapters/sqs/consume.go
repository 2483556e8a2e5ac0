package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// Consume calls handler for the messages of queues, with retries, delays and a DLQ,
// until ctx ends: for a service that knows nothing of Watermill. What [Subscriber]
// promises holds here too: the same queues, order of message groups, bounds,
// attributes and events.
//
// handler's answer is an error value: nil is done, and about everything else the
// policy decides (redeliver.Permanent, redeliver.RetryAfter, ...); a panic and a
// time-out are failures. It is called by many goroutines at once, MaxInFlight
// first deliveries and MaxRetriesInFlight retries for each queue, with the message
// as it came first, whatever its attempt: redeliver.FromContext tells which one it
// is. Body and attributes must not be changed; after the handler has returned they
// may be kept. The message has no receipt handle: to delete it, and to hide it from
// others meanwhile, is not the handler's to do. ctx's values are in the handler's
// context, its end is not: that comes with the policy's Timeout, and when the
// message is lost to this process.
//
// A queue is its name, its URL or its ARN. config.Marshaler and config.NackDelay,
// which are about Watermill messages, must be empty.
//
// Consume returns nil when ctx has ended: handlers and short receives under way
// may finish within config.DrainTimeout, then their contexts end, and their messages
// come back. It returns an error when it cannot begin. What fails later is told to
// config.Sink and tried again.
func Consume(ctx context.Context, config Config, queues []string, handler Handler) error {
	return config.consume(ctx, config.consumes(queues, handler == nil), queues, engine.Options[*delivery]{
		Handle: func(ctx context.Context, d *delivery) error { return handler(ctx, d.native) },
	})
}

// Handler handles a message of SQS, see [Consume].
type Handler func(ctx context.Context, m types.Message) error

// consume reads queues until ctx ends. opt says who handles their messages. It
// returns what is wrong with the call before it begins anything.
func (c *Config) consume(ctx context.Context, ps redeliver.Problems, queues []string, opt engine.Options[*delivery]) error {
	if err := ps.Err(); err != nil {
		return fmt.Errorf("sqs: %w", err)
	}
	client, err := Open(ctx, *c)
	if err != nil {
		return err
	}
	var readers []*reader
	var errs []error
	for _, queue := range queues {
		l, err := client.ready(ctx, queue)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		readers = append(readers, newReader(context.WithoutCancel(ctx), client, l))
	}
	if len(errs) == 0 {
		var all sync.WaitGroup
		for _, r := range readers {
			all.Go(func() { r.run(ctx, opt) })
		}
		all.Wait()
	}
	return errors.Join(append(errs, client.Close(ctx))...)
}

// consumes is all that is wrong with a call of Consume or ConsumeBatch, and with no
// call of Open.
func (c *Config) consumes(queues []string, handlerMissing bool) (ps redeliver.Problems) {
	if c.Marshaler != nil {
		ps.Add("Marshaler", fmt.Sprintf("%T", c.Marshaler), "must be nil: the handler gets SQS's own message")
	}
	if c.NackDelay != 0 {
		ps.Add("NackDelay", c.NackDelay, "must be 0: a handler of messages has no nack; it returns redeliver.RetryAfter")
	}
	if len(queues) == 0 {
		ps.Add("queues", "empty", "it is required: at least one queue")
	}
	var names []string
	for i, queue := range queues {
		field, name := fmt.Sprintf("queues[%d]", i), parseTopic(queue).name
		checkName(&ps, field, name)
		if slices.Contains(names, name) {
			ps.Add(field, fmt.Sprintf("%q", name), "must not be there twice")
		}
		names = append(names, name)
	}
	if handlerMissing {
		ps.Add("handler", "nil", "it is required")
	}
	return ps
}

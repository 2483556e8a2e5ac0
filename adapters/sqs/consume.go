package sqs

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/mq"
)

// Consume calls handler for the messages of queues, with retries, delays and a DLQ, until ctx ends.
// It is for services without Watermill, and keeps the promises of [Subscriber]: the same queues,
// order of message groups, bounds, attributes and events.
//
// The handler answers with an error value. After nil the message is done. After any other value
// (redeliver.Permanent, redeliver.RetryAfter, ...) the policy decides. A panic and a timeout are
// failures. For each queue, up to MaxInFlight first deliveries and MaxRetriesInFlight retries run
// the handler at once. At every attempt it gets the message as it first came; redeliver.FromContext
// returns the number of the attempt. The handler must not change body and attributes, but may keep
// them after it has returned. The message has no receipt handle: redeliver deletes it, and hides it
// from others meanwhile. The handler's context has the values of ctx, but does not end with ctx. It
// ends with the policy's Timeout, or when this process loses the message.
//
// A queue is its name, its URL or its ARN. config.Marshaler and config.NackDelay must be empty,
// because they concern Watermill messages.
//
// Consume returns nil when ctx has ended. Running handlers and short receives may then finish
// within config.DrainTimeout; after that their contexts end, and their messages come back. It
// returns an error when it cannot begin. It reports later failures to config.Sink and tries again.
func Consume(ctx context.Context, config Config, queues []string, handler Handler) error {
	return config.consume(ctx, config.checkCall(queues, handler == nil), queues, engine.Options[*delivery]{
		Handle: func(ctx context.Context, d *delivery) error { return handler(ctx, d.Native) },
	})
}

// Handler handles a message of SQS, see [Consume].
type Handler func(ctx context.Context, m types.Message) error

// consume reads queues until ctx ends. opt has the handler. If the call itself is invalid, consume returns the
// problems before it starts anything.
func (c *Config) consume(ctx context.Context, ps check.Problems, queues []string, opt engine.Options[*delivery]) (err error) {
	defer func() { err = engine.StartError(ctx, err) }()
	if err := ps.Err(); err != nil {
		return fmt.Errorf("sqs: %w", err)
	}
	client, err := openClient(ctx, *c)
	if err != nil {
		return err
	}
	if err := client.checkPolicyNames(ctx, queues...); err != nil {
		return errors.Join(err, mq.NewClient(client).Close(ctx))
	}
	var readers []*reader
	var errs []error
	for _, queue := range queues {
		l, err := client.provisionedLayout(ctx, queue)
		if err == nil {
			r := newReader(context.WithoutCancel(ctx), client, l)
			var late check.Problems // the queue's retention is known now
			engine.CheckBatchWait(&late, opt.BatchConfig, r.sub)
			readers, err = append(readers, r), late.Err()
		}
		errs = append(errs, err)
	}
	err = engine.JoinErrors("sqs", errs)
	if err == nil {
		var all sync.WaitGroup
		for _, r := range readers {
			all.Go(func() { r.run(ctx, opt) })
		}
		all.Wait()
	}
	return errors.Join(err, mq.NewClient(client).Close(ctx))
}

// checkCall returns the problems of a call of Consume or ConsumeBatch that Open does not check.
func (c *Config) checkCall(queues []string, handlerMissing bool) check.Problems {
	call := rules.Call{
		Kind: "queue", Names: queues, NameOf: func(queue string) string { return parseTopic(queue).name }, CheckName: checkName,
		HandlerMissing: handlerMissing, Marshaler: c.Marshaler, NackDelay: c.NackDelay,
	}
	return call.Check()
}

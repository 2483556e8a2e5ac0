package kafkashare

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/mq"
)

// Handler handles a record, see [Consume].
type Handler func(ctx context.Context, rec *kgo.Record) error

// Consume calls handler for the records of topics, as members of config.Group with retries, delays
// and a DLQ, until ctx ends. It is for services without Watermill, and keeps the promises of
// [Subscriber]: the same topics, bounds, headers and events. config.Marshaler and config.NackDelay
// must be empty, because they concern Watermill messages.
//
// The handler answers with an error value. After nil the record is done. After any other value
// (redeliver.Permanent, redeliver.RetryAfter, ...) the policy decides. A panic and a timeout are
// failures. Many goroutines call the handler at once. At every attempt it gets the record as it is
// in its topic; redeliver.FromContext returns the number of the attempt. The handler must neither
// change nor ack the record, but may keep it after it has returned. Its context has the values of
// ctx, but does not end with ctx. It ends with the policy's Timeout.
//
// Consume returns nil when ctx has ended. Running handlers may then finish within
// config.DrainTimeout; after that their contexts end, and their records come back. It returns an
// error when it cannot begin. It reports later failures to config.Sink and tries again.
func Consume(ctx context.Context, config Config, topics []string, handler Handler) error {
	return config.runReaders(ctx, config.checkCall(topics, handler == nil), topics, engine.Options[*kgo.Record]{Handle: handler})
}

// runReaders reads topics until ctx ends, and handles their records as opt says. ps has the problems of the call.
func (c Config) runReaders(ctx context.Context, ps check.Problems, topics []string, opt engine.Options[*kgo.Record]) (err error) {
	defer func() { err = engine.StartError(ctx, err) }()
	c = c.withDefaults()
	c.check(&ps)
	if err := ps.Err(); err != nil {
		return fmt.Errorf("kafkashare: %w", err)
	}
	client, err := openClient(ctx, c)
	if err != nil {
		return err
	}
	if err := client.checkPolicyNames(ctx, topics...); err != nil {
		return errors.Join(err, mq.NewClient(client).Close(ctx))
	}
	var readers []*reader
	var errs []error
	for _, topic := range topics {
		r, err := client.openReader(ctx, topic)
		readers, errs = append(readers, r), append(errs, err)
	}
	err = engine.JoinErrors("kafkashare", errs)
	if err == nil {
		var all sync.WaitGroup
		for _, r := range readers {
			all.Go(func() { r.run(ctx, opt) })
		}
		all.Wait()
	}
	return errors.Join(err, mq.NewClient(client).Close(ctx))
}

// checkCall returns the problems of a call of Consume or ConsumeBatch, except those of the configuration itself.
func (c *Config) checkCall(topics []string, handlerMissing bool) check.Problems {
	call := rules.Call{Kind: "topic", Names: topics, CheckName: kafkaname.CheckTopic, HandlerMissing: handlerMissing, Marshaler: c.Marshaler, NackDelay: c.NackDelay}
	return call.Check()
}

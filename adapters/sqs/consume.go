package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
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
func Consume(ctx context.Context, config Config, queues []string, handler func(context.Context, types.Message) error) error {
	return config.consume(ctx, config.consumes(queues, handler == nil), queues, func(*reader) *consumer { return newConsumer(handler) })
}

// consume reads queues until ctx ends, with what is to stand behind each reader. It
// returns what is wrong with the call before it begins anything.
func (c *Config) consume(ctx context.Context, ps redeliver.Problems, queues []string, behind func(*reader) *consumer) error {
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
		r := newReader(context.WithoutCancel(ctx), client, l)
		r.out, r.consumer = nil, behind(r)
		readers = append(readers, r)
	}
	if len(errs) == 0 {
		var all sync.WaitGroup
		for _, r := range readers {
			all.Go(func() {
				defer r.consumer.close()
				r.run(ctx)
			})
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
		ps.Add("queues", "empty", "is required: at least one queue")
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
		ps.Add("handler", "nil", "is required")
	}
	return ps
}

// consumer stands behind a reader in the place of a channel of Watermill messages:
// a handler of SQS's own messages, and those who call it. The lanes are the same.
type consumer struct {
	handle  func(context.Context, types.Message) error
	workers *delayqueue.Workers[*entry]
	batches *delayqueue.BatchWorkers // in the place of both, where messages are handled many at a time
}

func newConsumer(handle func(context.Context, types.Message) error) *consumer {
	return &consumer{handle: handle, workers: delayqueue.NewWorkers((*entry).work)}
}

// give has a message handled soon, whose entry has a slot.
func (c *consumer) give(e *entry) {
	if c.batches != nil {
		c.batches.Give(e.Again(), e.d, e, len(aws.ToString(e.rec.native.Body)))
		return
	}
	c.workers.Give(e)
}

// close lets the goroutines end that have nothing to do.
func (c *consumer) close() {
	if c.batches != nil {
		c.batches.Close()
		return
	}
	c.workers.Close()
}

// work is what a worker does with an entry.
func (e *entry) work() {
	if how, ended := delayqueue.Work(&e.attempt, e.d, e); ended {
		e.lane.flight.Report(e, how)
	}
}

// Handle implements [delayqueue.Task].
func (e *entry) Handle(a *delayqueue.Attempt) error {
	return e.lane.r.consumer.handle(a, e.rec.native)
}

// Describe implements [delayqueue.Task].
func (e *entry) Describe() (redeliver.Headers, []byte) {
	return &e.rec, []byte(aws.ToString(e.rec.native.Body))
}

// Answered implements [delayqueue.Task]: a message without a receipt cannot be
// settled by its handler.
func (e *entry) Answered() bool { return false }

// Expired implements [delayqueue.Task].
func (e *entry) Expired(err error) error { return err }

// Settle implements [delayqueue.Task].
func (e *entry) Settle(acked bool) {
	if !acked { // otherwise it has moved on, see Moved
		e.lane.flight.Report(e, delayqueue.Abandoned)
	}
}

// Get is an attribute's value as a text; "" where there is none.
func (r *record) Get(name string) string {
	v, ok := r.MessageAttributes[name]
	if ok && v.StringValue == nil {
		return string(v.BinaryValue)
	}
	return aws.ToString(v.StringValue)
}

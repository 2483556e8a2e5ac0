package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/mq"
)

// Handler handles a delivery, see [Consume].
type Handler func(ctx context.Context, d amqp091.Delivery) error

// Consume calls handler for the messages of queues, with retries, delays and a DLQ, until ctx ends.
// It is for services without Watermill, and keeps the promises of [Subscriber]: the same queues,
// bounds, headers and events. config.Topology maps each name in queues to a queue; the default is
// that name.
//
// The handler answers with an error value. After nil the message is done. After any other value
// (redeliver.Permanent, redeliver.RetryAfter, ...) the policy decides. A panic and a timeout are
// failures. Many goroutines call the handler at once, for MaxInFlight first deliveries and
// MaxRetriesInFlight retries of each queue. At every attempt it gets the delivery as it first came
// from its queue, but x-death and the like at the first one only; redeliver.FromContext returns the number of the attempt. The handler must not
// change the delivery's body and headers, but may keep them. Its context has the values of ctx, but
// does not end with ctx. It ends with the policy's Timeout, or when this process loses the message.
//
// The message is acked when the handler's answer is settled. A handler may still ack, nack or
// reject the delivery, as in a loop of its own. These calls are part of its answer. Ack does
// nothing. If the handler returns nil, Nack and Reject are failures: with requeue like an error,
// after config.NackDelay if that is set; without requeue the message goes to the DLQ, rejected.
// With multiple they return an error and do nothing.
//
// config.Marshaler must be nil, because it concerns Watermill messages. Consume opens its own
// connections. Each queue has a consumer of its own.
//
// Consume returns nil when ctx has ended. Running handlers may then finish within
// config.DrainTimeout; after that their contexts end, and their messages come back. It returns an
// error when it cannot begin: then it has read no queue, and the error has the problems of each. It
// reports later failures to config.Sink and tries again.
func Consume(ctx context.Context, config Config, queues []string, handler Handler) error {
	return config.consume(ctx, config.checkConsume(queues, handler == nil), queues, engine.Options[*delivery]{Handle: handle(config.NackDelay, handler)})
}

// consume reads queues until ctx ends. opt has the handler. If the call itself is invalid, consume returns the
// problems before it starts anything.
func (c Config) consume(ctx context.Context, ps check.Problems, queues []string, opt engine.Options[*delivery]) (err error) {
	defer func() { err = engine.StartError(ctx, err) }()
	if err := ps.Err(); err != nil {
		return fmt.Errorf("amqp: %w", err)
	}
	client, err := openClient(ctx, c)
	if err != nil {
		return err
	}
	if err := client.checkPolicyNames(ctx, queues...); err != nil {
		return errors.Join(err, mq.NewClient(client).Close(ctx))
	}
	var readers []*reader
	var errs []error
	for _, queue := range queues {
		r, err := client.reader(ctx, queue)
		readers, errs = append(readers, r), append(errs, err)
	}
	err = engine.JoinErrors("amqp", errs)
	if err == nil {
		err = client.openFirstChannels(ctx, readers...)
	}
	if err == nil {
		var all sync.WaitGroup
		for _, r := range readers {
			all.Go(func() { r.run(ctx, opt) })
		}
		all.Wait()
	}
	return errors.Join(err, mq.NewClient(client).Close(ctx))
}

// checkConsume returns the problems of a call of Consume or ConsumeBatch that Open does not check.
func (c Config) checkConsume(queues []string, handlerMissing bool) check.Problems {
	call := rules.Call{Kind: "queue", Names: queues, HandlerMissing: handlerMissing, Marshaler: c.Marshaler} // a delivery may be nacked
	return call.Check()
}

// handle returns a function that calls a handler of amqp091 deliveries.
func handle(nackDelay time.Duration, handler Handler) func(context.Context, *delivery) error {
	return func(ctx context.Context, d *delivery) error {
		answer := &d.acker
		if d.lastAcker.Load() != nil { // a further attempt in this process: the previous handler may still answer
			answer = new(acker)
		}
		d.lastAcker.Store(answer)
		given := d.Delivery
		given.Acknowledger, given.DeliveryTag, given.ConsumerTag = answer, d.tag, link.ConsumerTag
		err := handler(ctx, given)
		if requested := answer.answer.Load(); err == nil && requested != answerNone {
			return nackError(requested == answerRequeue, nackDelay)
		}
		return err
	}
}

// nackError returns the error of a handler that has nacked or rejected its delivery.
func nackError(requeue bool, delay time.Duration) error {
	switch {
	case !requeue:
		return redeliver.Reject("by the handler, without requeue")
	case delay > 0:
		return redeliver.RetryAfter(redeliver.ErrNacked, delay)
	default:
		return redeliver.ErrNacked
	}
}

// The answers that a handler gives by the delivery's own methods.
const (
	answerNone    uint32 = iota // none or an ack; the message is acked when the handler returns nil
	answerRequeue               // nacked or rejected with requeue
	answerDrop                  // nacked or rejected without requeue
)

// acker is the Acknowledger of the delivery that a handler gets for one attempt. It records the answer and acks
// nothing.
type acker struct{ answer atomic.Uint32 }

var errMultiple = errors.New("amqp: a handler answers for its own message alone: multiple must be false")

// Ack implements [amqp091.Acknowledger].
func (a *acker) Ack(_ uint64, multiple bool) error { return a.record(answerNone, multiple) }

// Nack implements [amqp091.Acknowledger].
func (a *acker) Nack(tag uint64, multiple, requeue bool) error {
	if multiple {
		return errMultiple
	}
	return a.Reject(tag, requeue)
}

// Reject implements [amqp091.Acknowledger].
func (a *acker) Reject(_ uint64, requeue bool) error {
	if requeue {
		return a.record(answerRequeue, false)
	}
	return a.record(answerDrop, false)
}

func (a *acker) record(what uint32, multiple bool) error {
	if multiple {
		return errMultiple
	}
	if what != answerNone {
		a.answer.CompareAndSwap(answerNone, what) // the first answer counts
	}
	return nil
}

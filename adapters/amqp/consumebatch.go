package amqp

import (
	"cmp"
	"context"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/internal/engine"
)

// BatchHandler handles a batch of messages, see [ConsumeBatch].
type BatchHandler func(ctx context.Context, b *Batch) error

// ConsumeBatch is [Consume] with a handler for many deliveries at once: up to batch.Size of one
// queue, each with an answer of its own. The documentation of Consume applies here too.
//
// The handler may answer each delivery of a batch separately. With an ordered policy an answer takes
// effect as soon as the earlier deliveries of its key in the batch have one. When the handler
// returns, the other deliveries are done after nil. After an error or a panic they have failed with
// it, and run again in smaller batches. Each delivery has its own attempts, delay and DLQ reason.
// docs/reference/batching.md says which answer counts.
//
// The handler's ctx ends with the policy's Timeout, which counts from the call, or when this
// process has lost all messages of the batch. The state of a message is in the message's own
// context. A handler that runs for more than a second longer than the Timeout is stuck: its
// messages have moved on, and the next batch begins beside it. The handler must be safe for
// concurrent use if batch.Concurrency is above 1 or there are several queues, because each queue
// has batches of its own.
//
// A batch.Size above MaxInFlight is refused, and so is a batch.Timeout that, together with the
// policy's Timeout, exceeds ConsumerTimeout. When ctx ends, a partial batch is handled without
// waiting for more. A message that may have killed its process is a batch of its own.
func ConsumeBatch(ctx context.Context, config Config, queues []string, batch redeliver.BatchConfig, handler BatchHandler) error {
	ps := config.checkConsume(queues, handler == nil)
	ps.Include(batch.Validate())
	batch = batch.WithDefaults()
	engine.CheckBatchSize(&ps, batch, cmp.Or(config.MaxInFlight, DefaultMaxInFlight))
	engine.CheckBatchWait(&ps, batch, config.holders(queues)...)
	return config.consume(ctx, ps, queues, engine.Options[*delivery]{
		BatchConfig: batch,
		Batch: func(b *engine.Batch, all []*engine.BatchMember[*delivery]) error {
			return handler(b, newBatch(b, all, config.NackDelay))
		},
	})
}

// Batch is the argument of a [BatchHandler]. Many goroutines may call its methods at once, until
// the handler returns.
type Batch struct {
	// Messages has at least one message, in order of arrival. The handler may change the slice.
	Messages []*BatchMessage
	// Origin and Group name the subscription: the queue, by both names.
	Origin, Group string

	batch *engine.Batch
}

func newBatch(b *engine.Batch, all []*engine.BatchMember[*delivery], nackDelay time.Duration) *Batch {
	nb := &Batch{Messages: make([]*BatchMessage, len(all)), Origin: b.Origin, Group: b.Group, batch: b}
	room := make([]BatchMessage, len(all))
	for i, member := range all {
		m := &room[i]
		m.Delivery, m.member, m.nackDelay = member.Record.Delivery, member, nackDelay
		m.Acknowledger, m.DeliveryTag, m.ConsumerTag = (*batchAcker)(m), member.Record.tag, link.ConsumerTag
		nb.Messages[i] = m
	}
	return nb
}

// AckAll acks, when the handler returns, every message without an answer of its own, whatever the
// handler returns. It reports whether the call counts: it does not after another AckAll or
// RetryAll, or after the end of the batch.
func (b *Batch) AckAll() bool { return b.batch.AckAll() }

// RetryAll fails every message without an answer of its own when the handler returns. These
// messages run again after delay (see [BatchMessage.Retry]). It reports whether the call counts, as
// AckAll does.
func (b *Batch) RetryAll(delay ...time.Duration) bool { return b.batch.RetryAll(delay...) }

// BatchMessage is a delivery of a batch, at every attempt as it first came from its queue. The
// first answer counts, and takes effect at once. Each method reports whether its call was that
// answer. Later answers, and answers after the message's Timeout, are ignored. The sink also gets
// those that come after the end of the batch (LateAnswer). Body and headers must not be changed,
// but may be kept.
//
// The delivery's own methods (m.Delivery.Nack) are answers as in [Consume], and the first one
// counts here, too. Its Ack is the same as Ack.
type BatchMessage struct {
	amqp091.Delivery

	member    *engine.BatchMember[*delivery]
	nackDelay time.Duration
}

// Context returns the message's context, which has its state.
func (m *BatchMessage) Context() context.Context { return m.member.Context() }

// State returns the state of the message: State().Attempt() is the number of the attempt that runs
// now.
func (m *BatchMessage) State() redeliver.State { return m.member.State() }

// Ack answers that the message is done.
func (m *BatchMessage) Ack() bool { return m.member.Ack() }

// Retry answers that the message has failed and should run again after delay or, without one, when
// the policy says. It counts towards MaxRetries. A negative delay is 0. All delays but the first
// are ignored.
func (m *BatchMessage) Retry(delay ...time.Duration) bool { return m.member.Retry(delay...) }

// Reject refuses the message: it goes to the DLQ now, with the reason rejected and the given text
// as its error.
func (m *BatchMessage) Reject(reason string) bool { return m.member.Reject(reason) }

// Answer answers with the value that the handler of a single message would return: nil is Ack, and
// the policy decides about an error. As with each of these methods, the sink may get the
// event of the attempt before the method returns.
func (m *BatchMessage) Answer(err error) bool { return m.member.Answer(err) }

// batchAcker is the Acknowledger of a delivery of a batch, as acker is of a single one.
type batchAcker BatchMessage

// Ack implements [amqp091.Acknowledger].
func (a *batchAcker) Ack(_ uint64, multiple bool) error { return a.record(nil, multiple) }

// Nack implements [amqp091.Acknowledger].
func (a *batchAcker) Nack(_ uint64, multiple, requeue bool) error {
	return a.record(nackError(requeue, a.nackDelay), multiple)
}

// Reject implements [amqp091.Acknowledger].
func (a *batchAcker) Reject(_ uint64, requeue bool) error {
	return a.record(nackError(requeue, a.nackDelay), false)
}

func (a *batchAcker) record(answer error, multiple bool) error {
	if multiple {
		return errMultiple
	}
	a.member.Answer(answer)
	return nil
}

package amqp

import (
	"context"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/mq"
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
	batch = rules.Batch(&ps, batch, config.MaxInFlight)
	engine.CheckBatchWait(&ps, batch, config.holders(queues)...)
	return config.consume(ctx, ps, queues, engine.Options[*delivery]{
		BatchConfig: batch,
		Batch: func(b *engine.Batch, all []*engine.BatchMember[*delivery]) error {
			return handler(b, newBatch(b, all, config.NackDelay))
		},
	})
}

// Batch is the argument of a [BatchHandler], and BatchMessage a delivery of it, as it first came from its queue. The delivery's own
// methods (m.Record.Nack) are answers as in [Consume]. Its Ack is the same as BatchMessage.Ack.
type (
	Batch        = mq.Batch[amqp091.Delivery]
	BatchMessage = mq.BatchMessage[amqp091.Delivery]
)

func newBatch(b *engine.Batch, all []*engine.BatchMember[*delivery], nackDelay time.Duration) *Batch {
	return mq.NewBatch(b.Origin, b.Group, b, len(all), func(i int) (amqp091.Delivery, context.Context, mq.Answerer) {
		m := all[i]
		d := m.Record.Delivery
		d.Acknowledger, d.DeliveryTag, d.ConsumerTag = &batchAcker{m, nackDelay}, m.Record.tag, link.ConsumerTag
		return d, m.Context(), m
	})
}

// batchAcker is the Acknowledger of a delivery of a batch, as acker is of a single one.
type batchAcker struct {
	answer    mq.Answerer
	nackDelay time.Duration
}

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
	a.answer.Answer(answer)
	return nil
}

package sqs

import (
	"cmp"
	"context"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/mq"
)

// BatchHandler handles a batch of messages, see [ConsumeBatch].
type BatchHandler func(ctx context.Context, b *Batch) error

// ConsumeBatch is [Consume] with a handler for many messages at once: up to batch.Size of one
// queue, each with an answer of its own. The documentation of Consume applies here too.
//
// The handler may answer each message of a batch separately. An answer takes effect as soon as the
// earlier messages of its group in the batch have one. If the handler returns nil, the other messages
// are done. If it returns an error or panics, they have failed with that, and run again in smaller
// batches. Each message has its own attempts, delay and DLQ reason.
// docs/reference/batching.md says which answer counts.
//
// The handler's ctx ends with the policy's Timeout, which counts from the call. When this process
// loses a message, only the message's own context, which has its state, ends. A handler that runs
// for more than a second longer than the Timeout is stuck: its messages have moved on, and the next
// batch begins beside it. The handler must be safe for concurrent use if batch.Concurrency is above
// 1 or there are several queues, because each queue has batches of its own.
//
// A batch may have several messages of a group of a FIFO queue, in their order. No two batches that
// run have messages of one group. A batch of a FIFO queue also runs when no message has come for
// 200 ms. A batch.Size above MaxInFlight is refused, and so is a batch.Timeout that, together with
// the policy's Timeout, exceeds 12 hours or the queue's retention. Messages that wait for their batch are hidden
// from others. When ctx ends, a partial batch is handled without waiting for more. A message that
// may have killed its process is a batch of its own.
func ConsumeBatch(ctx context.Context, config Config, queues []string, batch redeliver.BatchConfig, handler BatchHandler) error {
	ps := config.checkCall(queues, handler == nil)
	ps.Include(batch.Validate())
	batch = batch.WithDefaults()
	engine.CheckBatchSize(&ps, batch, cmp.Or(config.MaxInFlight, DefaultMaxInFlight))
	engine.CheckBatchWait(&ps, batch, config.holders(queues)...)
	return config.consume(ctx, ps, queues, engine.Options[*delivery]{
		BatchConfig: batch,
		Batch:       func(b *engine.Batch, all []*engine.BatchMember[*delivery]) error { return handler(b, newBatch(b, all)) },
	})
}

// Batch is the argument of a [BatchHandler], and BatchMessage a message of it, without its receipt handle.
type (
	Batch        = mq.Batch[types.Message]
	BatchMessage = mq.BatchMessage[types.Message]
)

func newBatch(b *engine.Batch, all []*engine.BatchMember[*delivery]) *Batch {
	return mq.NewBatch(b.Origin, b.Group, b, len(all), func(i int) (types.Message, context.Context, mq.Answerer) {
		m := all[i]
		return m.Record.Native, m.Context(), m
	})
}

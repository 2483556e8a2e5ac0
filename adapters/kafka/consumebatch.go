package kafka

import (
	"context"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/mq"
)

// BatchHandler handles a batch of records, see [ConsumeBatch].
type BatchHandler func(ctx context.Context, b *Batch) error

// ConsumeBatch is [Consume] with a handler for many records at once: up to batch.Size of one topic,
// each with an answer of its own. The documentation of Consume applies here too.
//
// The handler may answer each record of a batch separately. An answer takes effect as soon as the
// earlier records of its key in the batch have one. When the handler returns nil, the other records
// are done. After an error or a panic, they have failed with it, and run again in smaller batches.
// Each record has its own attempts, delay and DLQ reason. docs/reference/batching.md says which
// answer counts.
//
// The handler's ctx ends with the policy's Timeout, which counts from the call, or when this
// process has lost all records of the batch. The state of a record is in the record's own context.
// A handler that runs for more than a second longer than the Timeout is stuck: its records have
// moved on, and the next batch begins beside it. The handler must be safe for concurrent use if
// batch.Concurrency is above 1 or there are several topics, because each topic has batches of its
// own.
//
// A batch may have several records of a key, in their order. No two batches that run have records of
// one key. A batch.Size above MaxInFlight is refused. When ctx ends or the partition moves, a partial
// batch is handled without waiting for more.
func ConsumeBatch(ctx context.Context, client sarama.Client, config Config, topics []string, batch redeliver.BatchConfig, handler BatchHandler) error {
	config, ps := config.withClient(client, topics, handler == nil)
	opt := config.batchOptions(&ps, batch, handler)
	return config.runReaders(ctx, ps, topics, opt)
}

// batchOptions returns the options of the engine for batches. It adds what is wrong with them to ps.
func (c Config) batchOptions(ps *check.Problems, batch redeliver.BatchConfig, handler BatchHandler) engine.Options[*sarama.ConsumerMessage] {
	batch = rules.Batch(ps, batch, c.MaxInFlight)
	return engine.Options[*sarama.ConsumerMessage]{
		BatchConfig: batch,
		Batch: func(b *engine.Batch, all []*engine.BatchMember[*sarama.ConsumerMessage]) error {
			return handler(b, newBatch(b, all))
		},
	}
}

// Batch is the argument of a [BatchHandler], and BatchMessage a record of it, as it is in its topic.
type (
	Batch        = mq.Batch[*sarama.ConsumerMessage]
	BatchMessage = mq.BatchMessage[*sarama.ConsumerMessage]
)

func newBatch(b *engine.Batch, all []*engine.BatchMember[*sarama.ConsumerMessage]) *Batch {
	return mq.NewBatch(b.Origin, b.Group, b, len(all), func(i int) (*sarama.ConsumerMessage, context.Context, mq.Answerer) {
		m := all[i]
		return m.Record, m.Context(), m
	})
}

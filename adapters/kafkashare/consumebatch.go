package kafkashare

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/mq"
)

// BatchHandler handles a batch of records, see [ConsumeBatch].
type BatchHandler func(ctx context.Context, b *Batch) error

// ConsumeBatch is [Consume] with a handler for up to batch.Size records of one topic at once, each
// with an answer, attempts and a delay of its own. When the handler returns nil, the records
// without an answer are done; after an error or a panic they have failed.
// docs/reference/batching.md says which answer counts.
//
// The handler's ctx ends with the policy's Timeout, which counts from the call. The state of a
// record is in the record's own context. A batch.Size above MaxInFlight is refused.
func ConsumeBatch(ctx context.Context, config Config, topics []string, batch redeliver.BatchConfig, handler BatchHandler) error {
	ps := config.checkCall(topics, handler == nil)
	batch = rules.Batch(&ps, batch, config.MaxInFlight)
	return config.runReaders(ctx, ps, topics, engine.Options[*kgo.Record]{
		BatchConfig: batch,
		Batch: func(b *engine.Batch, all []*engine.BatchMember[*kgo.Record]) error {
			return handler(b, newBatch(b, all))
		},
	})
}

// Batch is the argument of a [BatchHandler], and BatchMessage a record of it, as it is in its topic.
type (
	Batch        = mq.Batch[*kgo.Record]
	BatchMessage = mq.BatchMessage[*kgo.Record]
)

func newBatch(b *engine.Batch, all []*engine.BatchMember[*kgo.Record]) *Batch {
	return mq.NewBatch(b.Origin, b.Group, b, len(all), func(i int) (*kgo.Record, context.Context, mq.Answerer) {
		m := all[i]
		return m.Record, m.Context(), m
	})
}

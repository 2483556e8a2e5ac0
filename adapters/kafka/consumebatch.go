package kafka

import (
	"cmp"
	"context"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// BatchConfig says when a batch is run: as soon as its Size, its Bytes (of values)
// or its Timeout is reached, and never empty.
type BatchConfig = engine.BatchConfig

// NoWait is a [BatchConfig] Timeout: what is there is handled at once.
const NoWait = engine.NoWait

// BatchHandler handles a batch of records, see [ConsumeBatch].
type BatchHandler func(ctx context.Context, b *Batch) error

// ConsumeBatch is [Consume] with a handler for many records at once: up to
// batch.Size of one topic, each with an answer of its own. All that is said of
// Consume holds here too.
//
// Each record of a batch may be answered by itself, which takes effect at once;
// what is not, when the handler returns, is done after nil and has failed with
// the error after an error or a panic. Each has its own attempts, delay and DLQ
// reason: who wins is the table of docs/reference/batching.md.
//
// handler's ctx ends with the policy's Timeout, which counts from the call, and
// when all records of the batch were lost to this process; a record's state is in
// its own context. A handler that outlives the Timeout by more than a second is
// stuck: its records have moved on, and the next batch begins beside it. It must be
// safe for concurrent use where batch.Concurrency is above 1, or there are several
// topics: each has batches of its own.
//
// As records of one key run one after another, a batch has at most one of each
// key, and one retry. A batch.Size above MaxInFlight is refused. What waits for its
// batch when ctx ends, or its partition moves, is handled without waiting for more.
func ConsumeBatch(ctx context.Context, client sarama.Client, config Config, topics []string, batch BatchConfig, handler BatchHandler) error {
	config, ps := config.behind(client, topics, handler == nil)
	batch.Check(&ps)
	batch = batch.WithDefaults()
	batch.CheckSize(&ps, cmp.Or(config.MaxInFlight, DefaultMaxInFlight))
	return config.consume(ctx, ps, topics, engine.Options[*sarama.ConsumerMessage]{
		BatchConfig: batch,
		Batch: func(b *engine.Batch, all []*engine.BatchMember[*sarama.ConsumerMessage]) error {
			return handler(b, newBatch(b, all))
		},
	})
}

// Batch is what the handler of [ConsumeBatch] handles. Its methods may be called by
// many goroutines at once, until the handler returns.
type Batch struct {
	// Messages are at least one, in the order in which they came. The slice is
	// the handler's own.
	Messages []*BatchMessage
	// Origin and Group name the subscription: the topic, and who reads it.
	Origin, Group string

	batch *engine.Batch
}

func newBatch(b *engine.Batch, all []*engine.BatchMember[*sarama.ConsumerMessage]) *Batch {
	nb := &Batch{Messages: make([]*BatchMessage, 0, len(all)), Origin: b.Origin, Group: b.Group, batch: b}
	messages := make([]BatchMessage, len(all))
	for i, m := range all {
		messages[i] = BatchMessage{ConsumerMessage: m.Record, member: m}
		nb.Messages = append(nb.Messages, &messages[i])
	}
	return nb
}

// AckAll says, when the handler returns, that every record is done that was not
// answered by itself, whatever the handler returns. It reports whether the call
// counts: a former AckAll or RetryAll stands, and so does the end of the batch.
func (b *Batch) AckAll() bool { return b.batch.AckAll() }

// RetryAll fails, when the handler returns, every record that was not answered by
// itself. They run again after delay (see [BatchMessage.Retry]). It reports whether
// the call counts, as AckAll does.
func (b *Batch) RetryAll(delay ...time.Duration) bool { return b.batch.RetryAll(delay...) }

// BatchMessage is a record of a batch, as it stood in its topic, whatever its
// attempt. The first answer that it is given counts, and takes effect at once.
// Each method reports whether its call was that answer. What comes later, or after
// the record's Timeout, is ignored; what comes after the end of the batch is told
// to the sink, too (LateAnswer). The record must not be changed; it may be kept.
type BatchMessage struct {
	*sarama.ConsumerMessage

	member *engine.BatchMember[*sarama.ConsumerMessage]
}

// Context is the record's context, in which its state is.
func (m *BatchMessage) Context() context.Context { return m.member.Context() }

// State is what redeliver knows of the record: State().Attempt() is the number of
// the attempt that runs now.
func (m *BatchMessage) State() redeliver.State { return m.member.State() }

// Ack says that the record is done.
func (m *BatchMessage) Ack() bool { return m.member.Ack() }

// Retry says that the record has failed and is to run again after delay, or,
// without one, when the policy says. It counts towards MaxRetries. A negative
// delay is 0; all but the first are ignored.
func (m *BatchMessage) Retry(delay ...time.Duration) bool { return m.member.Retry(delay...) }

// Reject says that the record is refused: it goes to the DLQ now, with the reason
// rejected and the given one as its error.
func (m *BatchMessage) Reject(reason string) bool { return m.member.Reject(reason) }

// Answer says what the handler of a single record says with what it returns: nil
// is Ack, and about an error the policy decides. As by each of these methods, the
// sink may be told of the attempt before it returns.
func (m *BatchMessage) Answer(err error) bool { return m.member.Answer(err) }

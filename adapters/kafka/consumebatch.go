package kafka

import (
	"cmp"
	"context"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
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
func (c Config) batchOptions(ps *redeliver.Problems, batch redeliver.BatchConfig, handler BatchHandler) engine.Options[*sarama.ConsumerMessage] {
	ps.Include(batch.Validate())
	batch = batch.WithDefaults()
	engine.CheckBatchSize(ps, batch, cmp.Or(c.MaxInFlight, DefaultMaxInFlight))
	return engine.Options[*sarama.ConsumerMessage]{
		BatchConfig: batch,
		Batch: func(b *engine.Batch, all []*engine.BatchMember[*sarama.ConsumerMessage]) error {
			return handler(b, newBatch(b, all))
		},
	}
}

// Batch is the argument of a [BatchHandler]. Many goroutines may call its methods at once, until
// the handler returns.
type Batch struct {
	// Messages has at least one message, in the order of their arrival. The slice is the handler's own.
	Messages []*BatchMessage
	// Origin and Group name the subscription: the topic and the group that reads it.
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

// AckAll acks every record without an answer of its own when the handler returns, whatever the
// handler returns. It reports whether the call counts: a call after another AckAll or RetryAll, or
// after the end of the batch, does not.
func (b *Batch) AckAll() bool { return b.batch.AckAll() }

// RetryAll fails every record without an answer of its own when the handler returns. These records
// run again after delay (see [BatchMessage.Retry]). It reports whether the call counts, as AckAll
// does.
func (b *Batch) RetryAll(delay ...time.Duration) bool { return b.batch.RetryAll(delay...) }

// BatchMessage is a record of a batch, as it is in its topic, at every attempt. The first answer
// counts, and takes effect at once. Each method reports whether its call was that answer. Later
// answers, and answers after the record's Timeout, are ignored. The sink gets a LateAnswer for
// those that come after the end of the batch. The record must not be changed, but may be kept.
type BatchMessage struct {
	*sarama.ConsumerMessage

	member *engine.BatchMember[*sarama.ConsumerMessage]
}

// Context returns the record's context, which has its state.
func (m *BatchMessage) Context() context.Context { return m.member.Context() }

// State returns the state of the record: State().Attempt() is the number of the attempt that runs
// now.
func (m *BatchMessage) State() redeliver.State { return m.member.State() }

// Ack answers that the record is done.
func (m *BatchMessage) Ack() bool { return m.member.Ack() }

// Retry answers that the record has failed and should run again after delay or, without one, when
// the policy says. It counts towards MaxRetries. A negative delay is 0. All delays but the first
// are ignored.
func (m *BatchMessage) Retry(delay ...time.Duration) bool { return m.member.Retry(delay...) }

// Reject refuses the record: it goes to the DLQ now, with the reason rejected and the given text as
// its error.
func (m *BatchMessage) Reject(reason string) bool { return m.member.Reject(reason) }

// Answer takes err as the answer, like the value that a handler of one record returns: nil is Ack,
// and the policy decides about an error. As with each of these methods, the sink may get the event
// of the attempt before the method returns.
func (m *BatchMessage) Answer(err error) bool { return m.member.Answer(err) }

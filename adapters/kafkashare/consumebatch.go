package kafkashare

import (
	"cmp"
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
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
	ps.Include(batch.Validate())
	batch = batch.WithDefaults()
	engine.CheckBatchSize(&ps, batch, cmp.Or(config.MaxInFlight, DefaultMaxInFlight))
	return config.runReaders(ctx, ps, topics, engine.Options[*kgo.Record]{
		BatchConfig: batch,
		Batch: func(b *engine.Batch, all []*engine.BatchMember[*kgo.Record]) error {
			return handler(b, newBatch(b, all))
		},
	})
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

func newBatch(b *engine.Batch, all []*engine.BatchMember[*kgo.Record]) *Batch {
	nb := &Batch{Origin: b.Origin, Group: b.Group, batch: b}
	for _, m := range all {
		nb.Messages = append(nb.Messages, &BatchMessage{m.Record, m})
	}
	return nb
}

// AckAll acks every record without an answer of its own when the handler returns, whatever the
// handler returns. It reports whether the call counts: not after another AckAll or RetryAll, nor
// after the end of the batch.
func (b *Batch) AckAll() bool { return b.batch.AckAll() }

// RetryAll fails every record without an answer of its own when the handler returns. These records
// run again after delay (see [BatchMessage.Retry]). It reports whether the call counts, as AckAll
// does.
func (b *Batch) RetryAll(delay ...time.Duration) bool { return b.batch.RetryAll(delay...) }

// BatchMessage is a record of a batch, as it is in its topic, at every attempt. The first answer
// counts, and takes effect at once. Each method that answers reports whether it counted. The record
// must not be changed, but may be kept.
type BatchMessage struct {
	*kgo.Record

	member *engine.BatchMember[*kgo.Record]
}

// Context returns the record's context, which has its state.
func (m *BatchMessage) Context() context.Context { return m.member.Context() }

// State returns the state of the record: State().Attempt() is the number of the attempt that runs
// now.
func (m *BatchMessage) State() redeliver.State { return m.member.State() }

// Ack answers that the record is done.
func (m *BatchMessage) Ack() bool { return m.member.Ack() }

// Retry answers that the record has failed and should run again after delay or, without one, when
// the policy says. It counts towards MaxRetries.
func (m *BatchMessage) Retry(delay ...time.Duration) bool { return m.member.Retry(delay...) }

// Reject refuses the record: it goes to the DLQ now, with the reason rejected and the given text as
// its error.
func (m *BatchMessage) Reject(reason string) bool { return m.member.Reject(reason) }

// Answer answers as if a handler of this record alone had returned err: nil is Ack, and the policy
// decides about an error.
func (m *BatchMessage) Answer(err error) bool { return m.member.Answer(err) }

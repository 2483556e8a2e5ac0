package sqs

import (
	"cmp"
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
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

// Batch is the argument of a [BatchHandler]. Many goroutines may call its methods at once, until
// the handler returns.
type Batch struct {
	// Messages has at least one message, in order of arrival. The handler may change the slice.
	Messages []*BatchMessage
	// Origin and Group name the subscription: the queue's name, twice.
	Origin, Group string

	batch *engine.Batch
}

func newBatch(b *engine.Batch, all []*engine.BatchMember[*delivery]) *Batch {
	nb := &Batch{Messages: make([]*BatchMessage, 0, len(all)), Origin: b.Origin, Group: b.Group, batch: b}
	for _, m := range all {
		nb.Messages = append(nb.Messages, &BatchMessage{Message: m.Record.Native, member: m})
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

// BatchMessage is a message of a batch. It is the same at every attempt. The first answer counts,
// and takes effect at once. Each method reports whether its call was that answer. Later answers,
// and answers after the message's Timeout, are ignored. The sink also gets those that come after
// the end of the batch (LateAnswer). The message has no receipt handle. Body and attributes must
// not be changed, but may be kept.
type BatchMessage struct {
	types.Message

	member *engine.BatchMember[*delivery]
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

// Answer answers with the value that a handler of a single message would return: nil is Ack, and
// the policy decides about an error. As with each of these methods, the sink may get the event of
// the attempt before the method returns.
func (m *BatchMessage) Answer(err error) bool { return m.member.Answer(err) }

package sqs

import (
	"cmp"
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// BatchConfig says when a batch is run: as soon as its Size, its Bytes (of bodies)
// or its Timeout is reached, and never empty.
type BatchConfig = engine.BatchConfig

// NoWait is a [BatchConfig] Timeout: what is there is handled at once.
const NoWait = engine.NoWait

// BatchHandler handles a batch of messages, see [ConsumeBatch].
type BatchHandler func(ctx context.Context, b *Batch) error

// ConsumeBatch is [Consume] with a handler for many messages at once: up to
// batch.Size of one queue, each with an answer of its own. All that is said of
// Consume holds here too.
//
// Each message of a batch may be answered by itself, which takes effect at once;
// what is not, when the handler returns, is done after nil and has failed with
// the error after an error or a panic. Each has its own attempts, delay and DLQ
// reason: who wins is the table of docs/reference/batching.md.
//
// handler's ctx ends with the policy's Timeout, which counts from the call. A message
// that is lost to this process ends its own context, in which its state is, and not ctx. A handler that outlives the Timeout by more than a second is
// stuck: its messages have moved on, and the next batch begins beside it. It must be
// safe for concurrent use where batch.Concurrency is above 1, or there are several
// queues: each has batches of its own.
//
// As messages of one group of a FIFO queue run one after another, a batch has at
// most one of each group. A batch.Size above MaxInFlight is refused. What waits for
// its batch is hidden from others; when ctx ends it is handled without waiting for
// more. A message that may have killed its process is a batch of its own.
func ConsumeBatch(ctx context.Context, config Config, queues []string, batch BatchConfig, handler BatchHandler) error {
	ps := config.consumes(queues, handler == nil)
	batch.Check(&ps)
	batch = batch.WithDefaults()
	batch.CheckSize(&ps, cmp.Or(config.MaxInFlight, DefaultMaxInFlight))
	return config.consume(ctx, ps, queues, engine.Options[*delivery]{
		BatchConfig: batch,
		Batch:       func(b *engine.Batch, all []*engine.BatchMember[*delivery]) error { return handler(b, newBatch(b, all)) },
	})
}

// Batch is what the handler of [ConsumeBatch] handles. Its methods may be called by
// many goroutines at once, until the handler returns.
type Batch struct {
	// Messages are at least one, in the order in which they came. The slice is
	// the handler's own.
	Messages []*BatchMessage
	// Origin and Group name the subscription: the queue's name, twice.
	Origin, Group string

	batch *engine.Batch
}

func newBatch(b *engine.Batch, all []*engine.BatchMember[*delivery]) *Batch {
	nb := &Batch{Messages: make([]*BatchMessage, 0, len(all)), Origin: b.Origin, Group: b.Group, batch: b}
	for _, m := range all {
		nb.Messages = append(nb.Messages, &BatchMessage{Message: m.Record.native, member: m})
	}
	return nb
}

// AckAll says, when the handler returns, that every message is done that was not
// answered by itself, whatever the handler returns. It reports whether the call
// counts: a former AckAll or RetryAll stands, and so does the end of the batch.
func (b *Batch) AckAll() bool { return b.batch.AckAll() }

// RetryAll fails, when the handler returns, every message that was not answered by
// itself. They run again after delay (see [BatchMessage.Retry]). It reports whether
// the call counts, as AckAll does.
func (b *Batch) RetryAll(delay ...time.Duration) bool { return b.batch.RetryAll(delay...) }

// BatchMessage is a message of a batch, as it came first, whatever its attempt. The
// first answer that it is given counts, and takes effect at once. Each method tells
// whether its call was that answer. What comes later, or after the message's
// Timeout, is ignored; what comes after the end of the batch is told to the sink,
// too (LateAnswer). It has no receipt handle. Body and attributes must not be
// changed; they may be kept.
type BatchMessage struct {
	types.Message

	member *engine.BatchMember[*delivery]
}

// Context is the message's context, in which its state is.
func (m *BatchMessage) Context() context.Context { return m.member.Context() }

// State is what redeliver knows of the message: State().Attempt() is the number of
// the attempt that runs now.
func (m *BatchMessage) State() redeliver.State { return m.member.State() }

// Ack says that the message is done.
func (m *BatchMessage) Ack() bool { return m.member.Ack() }

// Retry says that the message has failed and is to run again after delay, or,
// without one, when the policy says. It counts towards MaxRetries. A negative
// delay is 0; all but the first are ignored.
func (m *BatchMessage) Retry(delay ...time.Duration) bool { return m.member.Retry(delay...) }

// Reject says that the message is refused: it goes to the DLQ now, with the reason
// rejected and the given one as its error.
func (m *BatchMessage) Reject(reason string) bool { return m.member.Reject(reason) }

// Answer says what the handler of a single message says with what it returns: nil
// is Ack, and about an error the policy decides. As by each of these methods, the
// sink may be told of the attempt before it returns.
func (m *BatchMessage) Answer(err error) bool { return m.member.Answer(err) }

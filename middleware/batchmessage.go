package middleware

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

var (
	// ErrRetryAsked is the failure of a message of a batch whose function asked
	// for a retry and gave no reason.
	ErrRetryAsked = engine.ErrRetryAsked
	// ErrBatchOver is what a LateAnswer says of a message that was settled when
	// its batch had ended.
	ErrBatchOver = engine.ErrBatchOver
)

// MessageBatch is what a [BatchFunc] handles. Its methods may be called by many
// goroutines at once, until the function returns.
type MessageBatch struct {
	// Messages are at least one, in the order in which they came. The slice is
	// the function's own.
	Messages []*BatchMessage
	// Origin and Group name the subscription; empty for messages that no
	// subscriber of redeliver delivered.
	Origin, Group string

	batch *engine.Batch
}

// AckAll acks, when the function returns, every message that is not settled by
// itself, whatever the function returns. It reports whether the call counts: a
// former AckAll or RetryAll stands, and so does the end of the batch.
func (b *MessageBatch) AckAll() bool { return b.batch.AckAll() }

// RetryAll fails, when the function returns, every message that is not settled
// by itself. They run again after delay (see [BatchMessage.Retry]). It tells
// whether the call counts, as AckAll does.
func (b *MessageBatch) RetryAll(delay ...time.Duration) bool { return b.batch.RetryAll(delay...) }

// BatchMessage is a message of a batch. The first answer that it is given counts,
// and takes effect at once: its handler has returned, and the batch goes on. Each
// method reports whether its call was that answer. What comes later, or after the
// message's Timeout, is ignored; what comes after the end of the batch is told to
// the sink, too (LateAnswer, with [ErrBatchOver]).
//
// The message's own Ack is not needed; its Nack is an answer as everywhere.
type BatchMessage struct {
	*message.Message

	ctx     context.Context // as it came
	place   engine.Batched
	err     error
	settled chan struct{} // closed when err stands
}

// Context is the message's context, also when it is settled: what it has as a
// [message.Message] is no longer the batch's then.
func (m *BatchMessage) Context() context.Context { return m.ctx }

// State is what redeliver knows of the message: State().Attempt() is the number
// of the attempt that runs now. It is zero for a message of another subscriber.
func (m *BatchMessage) State() redeliver.State {
	st, _ := redeliver.FromContext(m.ctx)
	return st
}

// Ack says that the message was handled.
func (m *BatchMessage) Ack() bool { return m.place.Ack() }

// Retry says that the message has failed and is to run again after delay, or,
// without one, when the policy says. It counts towards MaxRetries. A negative
// delay is 0; all but the first are ignored.
func (m *BatchMessage) Retry(delay ...time.Duration) bool { return m.place.Retry(delay...) }

// Reject says that the message is refused: it goes to the DLQ now, with the
// reason rejected and the given one as its error.
func (m *BatchMessage) Reject(reason string) bool { return m.place.Reject(reason) }

// Answer says what the handler of a single message says with what it returns:
// nil is Ack, and about an error the policy decides.
func (m *BatchMessage) Answer(err error) bool { return m.place.Answer(err) }

// waiter is the message as its batch knows it: its handler waits.
type waiter BatchMessage

// Verdict implements [engine.BatchWaiter].
func (w *waiter) Verdict(err error) { (*BatchMessage)(w).give(err) }

// give lets the message's handler return.
func (m *BatchMessage) give(err error) {
	m.err = err
	close(m.settled)
}

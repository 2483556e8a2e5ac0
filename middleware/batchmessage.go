package middleware

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// MessageBatch is the batch that a [BatchFunc] handles. Many goroutines may call its methods at once, until the function returns.
type MessageBatch struct {
	// Messages has at least one message, in the order of arrival. The function may change the slice.
	Messages []*BatchMessage
	// Origin and Group name the subscription; empty for messages that no subscriber of redeliver delivered.
	Origin, Group string

	batch *engine.Batch
}

// AckAll acks, when the function returns, every message that has no answer of its own, whatever the function returns.
// It reports whether the call counts: it does not after another AckAll or RetryAll, or after the end of the batch.
func (b *MessageBatch) AckAll() bool { return b.batch.AckAll() }

// RetryAll fails, when the function returns, messages that have no answer of their own. They run again after delay (see
// [BatchMessage.Retry]). It reports whether the call counts, as AckAll does.
func (b *MessageBatch) RetryAll(delay ...time.Duration) bool { return b.batch.RetryAll(delay...) }

// BatchMessage is a message of a batch. Ack, Retry, Reject and Answer answer it, and report whether the answer counts. The first answer
// counts and takes effect at once, while the batch continues. A later answer, or one after the message's Timeout, is ignored. For an
// answer after the end of the batch the sink gets a LateAnswer with [redeliver.ErrBatchEnded].
//
// The function need not call Ack of the Watermill message; its Nack is an answer.
type BatchMessage struct {
	*message.Message

	ctx     context.Context // of the message when it came
	batched engine.Batched
	err     error
	settled chan struct{} // closed when err is set
}

// Context returns the message's context, also after its answer.
func (m *BatchMessage) Context() context.Context { return m.ctx }

// State returns the message's state: State().Attempt() is the number of the running attempt. It is zero for a message
// of another subscriber.
func (m *BatchMessage) State() redeliver.State {
	st, _ := redeliver.FromContext(m.ctx)
	return st
}

// Ack answers that the message was handled.
func (m *BatchMessage) Ack() bool { return m.batched.Ack() }

// Retry answers that the message has failed and must run again after delay, or, without a delay, after the policy's delay.
// It counts towards MaxRetries. A negative delay counts as 0; all delays but the first are ignored.
func (m *BatchMessage) Retry(delay ...time.Duration) bool { return m.batched.Retry(delay...) }

// Reject refuses the message: it goes to the DLQ now, rejected, with reason as its error.
func (m *BatchMessage) Reject(reason string) bool { return m.batched.Reject(reason) }

// Answer answers as a handler of single messages does with the error that it returns: nil is Ack, and the policy decides about an error.
func (m *BatchMessage) Answer(err error) bool { return m.batched.Answer(err) }

// batchWaiter lets the handler of a BatchMessage wait for its answer.
type batchWaiter BatchMessage

// SetAnswer implements [engine.BatchWaiter].
func (w *batchWaiter) SetAnswer(err error) { (*BatchMessage)(w).deliverAnswer(err) }

// deliverAnswer sets the answer and ends the wait of the message's handler.
func (m *BatchMessage) deliverAnswer(err error) {
	m.err = err
	close(m.settled)
}

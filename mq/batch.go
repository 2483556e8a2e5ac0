package mq

import (
	"context"
	"time"

	"github.com/redeliver/redeliver"
)

// Batch is the argument of a batch handler: messages of one subscription. Many goroutines may call its methods at once, until the
// handler returns. M is the message of the client library, such as *sarama.ConsumerMessage.
type Batch[M any] struct {
	// Messages has at least one message, in the order of arrival. The handler may change the slice.
	Messages []*BatchMessage[M]
	// Origin and Group name the subscription: the topic or queue, and the group that reads it. On RabbitMQ and SQS both are the
	// queue. They are empty for Watermill messages that no subscriber of redeliver delivered.
	Origin, Group string

	all Answerer
}

// BatchMessage is a message of a batch. Each of Ack, Retry, RetryAfter, Reject and Answer answers it. The first answer counts, and
// each method reports whether its call was that one. With a policy that keeps an order an answer takes effect as soon as the earlier
// messages of its key in the batch have one, and otherwise at once, while the batch continues. Answers after the message's Timeout
// are ignored. For an answer after the end of the batch the sink gets a LateAnswer.
type BatchMessage[M any] struct {
	// Record is the message of the client library, the same at every attempt. It must not be changed, but may be kept.
	Record M

	ctx    context.Context
	answer Answerer
}

// Answerer takes an answer: of one message, or of all messages of a batch without an answer of their own. Adapters implement it.
type Answerer interface {
	// Answer takes an answer as a handler returns it, and reports whether it counts.
	Answer(err error) bool
}

// NewBatch returns a batch of n messages for an adapter. message returns each of them, with its context and the Answerer of its
// answers.
func NewBatch[M any](origin, group string, all Answerer, n int, message func(i int) (M, context.Context, Answerer)) *Batch[M] {
	b := &Batch[M]{Messages: make([]*BatchMessage[M], n), Origin: origin, Group: group, all: all}
	room := make([]BatchMessage[M], n)
	for i := range room {
		m := &room[i]
		m.Record, m.ctx, m.answer = message(i)
		b.Messages[i] = m
	}
	return b
}

// AckAll acks, when the handler returns, every message without an answer of its own, whatever the handler returns. It reports
// whether the call counts: a call after another AckAll, RetryAll or RetryAllAfter, or after the end of the batch, does not.
func (b *Batch[M]) AckAll() bool { return b.all.Answer(nil) }

// RetryAll fails, when the handler returns, every message without an answer of its own. These messages run again when the policy
// says. It reports whether the call counts, as AckAll does.
func (b *Batch[M]) RetryAll() bool { return b.all.Answer(redeliver.ErrRetryRequested) }

// RetryAllAfter is RetryAll, but the messages run again after d. A negative d is 0.
func (b *Batch[M]) RetryAllAfter(d time.Duration) bool {
	return b.all.Answer(redeliver.RetryAfter(redeliver.ErrRetryRequested, d))
}

// Context returns the message's context, which has its state. It stays valid after the message's answer.
func (m *BatchMessage[M]) Context() context.Context { return m.ctx }

// State returns the message's state: State().Attempt() is the number of the attempt that runs now. It is zero for a Watermill
// message that no subscriber of redeliver delivered.
func (m *BatchMessage[M]) State() redeliver.State {
	st, _ := redeliver.FromContext(m.ctx)
	return st
}

// Ack answers that the message is done.
func (m *BatchMessage[M]) Ack() bool { return m.answer.Answer(nil) }

// Retry answers that the message has failed and should run again when the policy says. It counts towards MaxRetries.
func (m *BatchMessage[M]) Retry() bool { return m.answer.Answer(redeliver.ErrRetryRequested) }

// RetryAfter is Retry, but the message runs again after d. A negative d is 0.
func (m *BatchMessage[M]) RetryAfter(d time.Duration) bool {
	return m.answer.Answer(redeliver.RetryAfter(redeliver.ErrRetryRequested, d))
}

// Reject refuses the message: it goes to the DLQ now, with the reason rejected and the given text as its error.
func (m *BatchMessage[M]) Reject(reason string) bool {
	return m.answer.Answer(redeliver.Reject(reason))
}

// Answer takes err as the answer, like the value that a handler of one message returns: nil is Ack, and the policy decides about an
// error. As with the other methods, the sink may get the event of the attempt before the method returns.
func (m *BatchMessage[M]) Answer(err error) bool { return m.answer.Answer(err) }

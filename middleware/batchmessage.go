package middleware

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

var (
	// ErrRetryAsked is the failure of a message of a batch whose function asked
	// for a retry and gave no reason.
	ErrRetryAsked = errors.New("the batch function asked for a retry")
	// ErrBatchOver is what a LateAnswer says of a message that was settled when
	// its batch had ended.
	ErrBatchOver = errors.New("settled after the end of its batch")
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

	run    *batchRun
	mu     sync.Mutex
	open   int   // messages that are not settled
	over   bool  // the function has returned, or what stands for that
	called bool  // AckAll or RetryAll was
	answer error // of that call
}

// AckAll acks, when the function returns, every message that is not settled by
// itself, whatever the function returns. It tells whether the call counts: a
// former AckAll or RetryAll stands, and so does the end of the batch.
func (b *MessageBatch) AckAll() bool { return b.all(nil) }

// RetryAll fails, when the function returns, every message that is not settled
// by itself. They run again after delay (see [BatchMessage.Retry]). It tells
// whether the call counts, as AckAll does.
func (b *MessageBatch) RetryAll(delay ...time.Duration) bool { return b.all(retryAsked(delay)) }

func (b *MessageBatch) all(answer error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || b.called {
		return false
	}
	b.called, b.answer = true, answer
	return true
}

// BatchMessage is a message of a batch. The first answer that it is given counts,
// and takes effect at once: its handler has returned, and the batch goes on. Each
// method tells whether its call was that answer. What comes later, or after the
// message's Timeout, is ignored; what comes after the end of the batch is told to
// the sink, too (LateAnswer, with [ErrBatchOver]).
//
// The message's own Ack is not needed; its Nack is an answer as everywhere.
type BatchMessage struct {
	*message.Message

	d   *delayqueue.Delivery // nil for a message of another subscriber
	a   *attempt             // nil without Retry around
	ctx context.Context      // as it came

	// Guarded by the gatherer's mu.
	prev, next *BatchMessage
	since      time.Duration // when it came, counted from epoch
	unwatch    func() bool
	taken      bool // out of the queue

	batch   *MessageBatch // its mu guards settled
	settled bool
	err     error
	done    atomic.Bool // err stands
	verdict sync.Cond   // told then
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
func (m *BatchMessage) Ack() bool { return m.Answer(nil) }

// Retry says that the message has failed and is to run again after delay, or,
// without one, when the policy says. It counts towards MaxRetries. A negative
// delay is 0; all but the first are ignored.
func (m *BatchMessage) Retry(delay ...time.Duration) bool { return m.Answer(retryAsked(delay)) }

// Reject says that the message is refused: it goes to the DLQ now, with the
// reason rejected and the given one as its error.
func (m *BatchMessage) Reject(reason string) bool { return m.Answer(redeliver.Reject(reason)) }

// Answer says what the handler of a single message says with what it returns:
// nil is Ack, and about an error the policy decides.
func (m *BatchMessage) Answer(err error) bool {
	b := m.batch
	b.mu.Lock()
	if m.settled && !b.over {
		b.mu.Unlock()
		return false
	}
	late := b.over
	if !late {
		m.settled = true
		b.open--
	}
	b.mu.Unlock()
	if late {
		m.tooLate(err)
		return false
	}
	counts := m.a == nil || m.a.Claim()
	m.give(err) // also when its own time was over: then its handler comes back at last
	return counts
}

// result is the verdict, which stands.
func (m *BatchMessage) result() error {
	if !m.done.Load() {
		panic("a message of a batch woke without its verdict")
	}
	return m.err
}

// give lets the message's handler return.
func (m *BatchMessage) give(err error) {
	m.err = err
	m.done.Store(true)
	m.verdict.Signal()
}

func (m *BatchMessage) tooLate(err error) {
	if m.d == nil || m.d.Sub.Sink == nil {
		return
	}
	why := ErrBatchOver
	if err != nil {
		why = fmt.Errorf("%w: %w", ErrBatchOver, err)
	}
	m.d.Sub.Tell(redeliver.LateAnswer{State: m.d.State(), Err: why, Stuck: m.d.Sub.Stuck.Load()})
}

// expire is what becomes of a message that is not settled when its time is over:
// what was said of the whole batch stands, else it has failed with timeout.
func (m *BatchMessage) expire(timeout error) error {
	b := m.batch
	b.run.Expire(timeout) // not before all its messages are out of the function's hands
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.called {
		return b.answer
	}
	return timeout
}

func (m *BatchMessage) isAlone() bool { return m.d != nil && m.d.Alone }

func retryAsked(delay []time.Duration) error {
	if len(delay) == 0 {
		return ErrRetryAsked
	}
	return redeliver.RetryAfter(ErrRetryAsked, delay[0])
}

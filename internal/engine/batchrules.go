package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// BatchWaiter waits for the answer to a message in a batch: a goroutine of a Router, or an adapter.
type BatchWaiter interface {
	// SetAnswer gets the answer, once, from any goroutine. It must not block: the queue may be locked when an error comes.
	SetAnswer(err error)
}

// Batched is a message that waits for a batch or is in one. Its first answer counts. It takes effect at once, while the batch
// continues. A Batched is safe for concurrent use after Init.
type Batched struct {
	waiter BatchWaiter
	d      *Delivery       // nil for a message of another subscriber
	ctx    context.Context // its end takes the message out of the queue
	bytes  int
	since  time.Duration // when it came, counted from epoch

	batch    *Batch // its mu guards answered
	answered bool
}

// Init prepares a message for the queue. The end of ctx takes it out of the queue, waiter gets its answer, d may be nil,
// and bytes is its size, if its source does not report a larger one.
func (m *Batched) Init(ctx context.Context, waiter BatchWaiter, d *Delivery, bytes int) {
	if d != nil {
		bytes = max(bytes, d.entry.size())
	}
	m.waiter, m.d, m.ctx, m.bytes = waiter, d, ctx, bytes
}

// Batch returns the batch that the message is in, or nil while it waits for one.
func (m *Batched) Batch() *Batch { return m.batch }

// Waiter returns the waiter for the answer.
func (m *Batched) Waiter() BatchWaiter { return m.waiter }

// RestartClock restarts the clock of a message that no batch takes.
func (m *Batched) RestartClock() {
	if m.d != nil {
		m.d.restartClock()
	}
}

// Ack answers that the message was handled.
func (m *Batched) Ack() bool { return m.Answer(nil) }

// Retry answers that the message has failed and must run again after delay, or, without a delay, when the policy says.
// A negative delay counts as 0; all delays but the first are ignored.
func (m *Batched) Retry(delay ...time.Duration) bool { return m.Answer(retryAsked(delay)) }

// Reject answers that the message goes to the DLQ now.
func (m *Batched) Reject(reason string) bool { return m.Answer(redeliver.Reject(reason)) }

// Answer answers as a handler of single messages does with the error that it returns. It reports whether the answer counts:
// it does not if the message already has an answer, or if its Timeout or its batch is over. An answer after the end of the
// batch is reported to the sink.
func (m *Batched) Answer(err error) bool {
	b := m.batch
	b.mu.Lock()
	if m.answered && !b.over {
		b.mu.Unlock()
		return false
	}
	late := b.over
	if !late {
		m.answered = true
		if m.d != nil {
			m.d.sharedBatch.Store(0)
		}
	}
	b.mu.Unlock()
	if late {
		m.reportLate(err)
		return false
	}
	counts := m.d == nil || m.d.claimAnswer()
	m.waiter.SetAnswer(err) // also after its own timeout: its stuck handler has returned
	return counts
}

// reportLate reports to the sink an answer that came after the end of the batch.
func (m *Batched) reportLate(err error) {
	if m.d == nil || m.d.sub.Sink == nil {
		return
	}
	why := ErrBatchEnded
	if err != nil {
		why = fmt.Errorf("%w: %w", ErrBatchEnded, err)
	}
	m.d.sub.emitStuck(0, func(n int64) redeliver.Event {
		return redeliver.LateAnswer{State: m.d.State(), Err: why, Stuck: n}
	})
}

// Expired implements [Task]. It returns the answer of AckAll or RetryAll if one was called, and otherwise timeout. The batch's
// context ends before its first message is settled.
func (m *Batched) Expired(timeout error) error {
	b := m.batch
	b.Expire(timeout)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.called {
		return b.answer
	}
	return timeout
}

// isLost reports whether the message must not be handled any more: its context has ended, or other processes may have it. For a
// record the context is that of its lane, which does not end when one message is lost.
func (m *Batched) isLost() bool { return m.ctx.Err() != nil || m.d != nil && m.d.Lost() }

// checkExpired returns an error if the message became too old while it waited.
func (m *Batched) checkExpired() error {
	if m.d == nil {
		return nil
	}
	return m.d.sub.checkExpired(m.d.state, m.d.entry)
}

func (m *Batched) isAlone() bool { return m.d != nil && m.d.alone }

func retryAsked(delay []time.Duration) error {
	if len(delay) == 0 {
		return ErrRetryRequested
	}
	return redeliver.RetryAfter(ErrRetryRequested, delay[0])
}

// Batch is one call of a batch function, and the context of that call. The context ends after the policy's Timeout, counted from
// the call, or when all messages of the batch were lost to this process. A Batch is safe for concurrent use.
type Batch struct {
	LazyContext
	// Origin and Group name the subscription. They are empty for messages of other subscribers.
	Origin, Group string

	queue   *Batches
	counted atomic.Bool                 // the batch counts in queue.running
	span    atomic.Pointer[handlerSpan] // of the call; nil without a tracer

	mu     sync.Mutex
	over   bool  // the function has ended
	called bool  // AckAll or RetryAll was called
	answer error // of that call

	messages      []*Batched
	began, until  time.Duration // counted from epoch; until 0: no Timeout
	expiry, stuck *time.Timer   // nil: no Timeout
}

// AckAll acks, when the function returns, every message that has no answer of its own, whatever the function returns.
// It reports whether the call counts: it does not after another AckAll or RetryAll, or after the end of the batch.
func (b *Batch) AckAll() bool { return b.all(nil) }

// RetryAll fails, when the function returns, every message that has no answer of its own. They run again after delay, see
// [Batched.Retry]. It reports whether the call counts, as AckAll does.
func (b *Batch) RetryAll(delay ...time.Duration) bool { return b.all(retryAsked(delay)) }

func (b *Batch) all(answer error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || b.called {
		return false
	}
	b.called, b.answer = true, answer
	return true
}

// settle answers for every message that has no answer: as AckAll or RetryAll says, or otherwise as the function returned.
func (b *Batch) settle(all []*Batched, err error) {
	b.mu.Lock()
	if b.called {
		err = b.answer
	}
	b.over = true
	b.messages = nil // a message keeps its batch in memory, which must not keep the other messages
	unanswered := all[:0]
	for _, m := range all {
		if !m.answered {
			m.answered = true
			unanswered = append(unanswered, m)
		}
	}
	b.mu.Unlock()
	for _, m := range unanswered {
		m.waiter.SetAnswer(err)
	}
}

// headerBytes is what a header takes beside its name and value, in memory or in JSON.
const headerBytes = 64

// SizeOf returns about how many bytes a message takes.
func SizeOf(msg *message.Message) int {
	n := len(msg.Payload)
	for name, value := range msg.Metadata {
		n += len(name) + len(value) + headerBytes
	}
	return n
}

package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
)

// BatchWaiter waits for the answer of a message that is in a batch: a goroutine of a
// Router, or an adapter that goes on from there.
type BatchWaiter interface {
	// Verdict is told the answer, once, by whatever goroutine gives it. An error
	// may come with the queue locked, so it must not be waited for anything then.
	Verdict(err error)
}

// Batched is the place of a message in a batch: first among those that wait for
// one, then in one that runs. The first answer that it is given counts and takes
// effect at once, while the batch goes on. Who shows it to a batch function shows
// Answer, and what is made of it, under the names that are the same everywhere:
// Ack, Retry, Reject, State and Context. Safe for concurrent use from Init on.
type Batched struct {
	waiter BatchWaiter
	d      *Delivery       // nil for a message of another subscriber
	ctx    context.Context // its end takes the message out of the queue
	bytes  int

	// Guarded by the queue's mu.
	prev, next *Batched
	since      time.Duration // when it came, counted from epoch
	unwatch    func() bool
	taken      bool // out of the queue

	batch   *Batch // its mu guards settled
	settled bool
}

// Init sets what is known of a message: the context whose end means that it is no longer to be handled, what waits for its
// answer, its delivery, which may be nil, and the length of its payload.
func (m *Batched) Init(ctx context.Context, who BatchWaiter, d *Delivery, bytes int) {
	m.waiter, m.d, m.ctx, m.bytes = who, d, ctx, bytes
}

// Batch is the batch that the message is in; nil while it waits for one.
func (m *Batched) Batch() *Batch { return m.batch }

// Waiter is who waits for the answer.
func (m *Batched) Waiter() BatchWaiter { return m.waiter }

// Leave is for a message that no batch takes.
func (m *Batched) Leave() {
	if m.d != nil {
		m.d.leaveBatch()
	}
}

// Ack answers that the message was handled.
func (m *Batched) Ack() bool { return m.Answer(nil) }

// Retry answers that it has failed and is to run again after delay, or, without
// one, when the policy says. A negative delay is 0; all but the first are ignored.
func (m *Batched) Retry(delay ...time.Duration) bool { return m.Answer(retryAsked(delay)) }

// Reject answers that it goes to the DLQ now.
func (m *Batched) Reject(reason string) bool { return m.Answer(redeliver.Reject(reason)) }

// Answer says what the handler of a single message says with what it returns, and
// whether that counts: not when the message has its answer, its Timeout is over,
// or its batch is, which the sink is told.
func (m *Batched) Answer(err error) bool {
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
	counts := m.d == nil || m.d.ClaimAnswer()
	m.waiter.Verdict(err) // also when its own time was over: then its handler comes back at last
	return counts
}

func (m *Batched) tooLate(err error) {
	if m.d == nil || m.d.sub.Sink == nil {
		return
	}
	why := ErrBatchOver
	if err != nil {
		why = fmt.Errorf("%w: %w", ErrBatchOver, err)
	}
	m.d.sub.emitStuck(0, func(n int64) redeliver.Event {
		return redeliver.LateAnswer{State: m.d.State(), Err: why, Stuck: n}
	})
}

// Expired is what becomes of a message that is not settled when its time is over:
// what was said of the whole batch stands, else it has failed with timeout. The
// task of its attempt asks, see [Task].
func (m *Batched) Expired(timeout error) error {
	b := m.batch
	b.Expire(timeout) // not before all its messages are out of the function's hands
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.called {
		return b.answer
	}
	return timeout
}

// isLost reports whether the message is not to be handled any more: its context has ended, or others may have it. A record is in
// the queue with the context of its lane, which does not end with the loss of one message.
func (m *Batched) isLost() bool { return m.ctx.Err() != nil || m.d != nil && m.d.Lost() }

// expired returns why a message that waited is too old now. Its clock stands still: no attempt of it began.
func (m *Batched) expired() error {
	if m.d == nil {
		return nil
	}
	return m.d.sub.expired(m.d.state, m.d.c)
}

func (m *Batched) isAlone() bool { return m.d != nil && m.d.alone }

func retryAsked(delay []time.Duration) error {
	if len(delay) == 0 {
		return ErrRetryAsked
	}
	return redeliver.RetryAfter(ErrRetryAsked, delay[0])
}

// Batch is one call of a batch function, and the context of it: that ends with the
// policy's Timeout, which counts from the call, and when all its messages were
// lost to this process. Safe for concurrent use.
type Batch struct {
	Lazy
	// Origin and Group name the subscription; empty for messages that no
	// subscriber of redeliver delivered.
	Origin, Group string

	queue *Batches
	slot  atomic.Bool            // it counts in queue.running
	span  atomic.Pointer[traced] // of the call; nil without a tracer

	mu     sync.Mutex
	open   int   // messages that are not settled
	over   bool  // the function has returned, or what stands for that
	called bool  // AckAll or RetryAll was
	answer error // of that call

	messages      []*Batched
	extended      bool
	began, until  time.Duration // counted from epoch; until 0: there is no Timeout
	expiry, stuck *time.Timer   // nil: likewise
}

// AckAll acks, when the function returns, every message that is not settled by
// itself, whatever the function returns. It tells whether the call counts: a
// former AckAll or RetryAll stands, and so does the end of the batch.
func (b *Batch) AckAll() bool { return b.all(nil) }

// RetryAll fails, when the function returns, every message that is not settled by
// itself. They run again after delay, see [Batched.Retry]. It tells whether the
// call counts, as AckAll does.
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

// settle gives every message its verdict that has none: what was said of the
// whole batch, else what the function returned.
func (b *Batch) settle(all []*Batched, err error) {
	b.mu.Lock()
	if b.called {
		err = b.answer
	}
	b.over = true
	open := all[:0]
	for _, m := range all {
		if !m.settled {
			m.settled = true
			open = append(open, m)
		}
	}
	b.mu.Unlock()
	for _, m := range open {
		m.waiter.Verdict(err)
	}
}

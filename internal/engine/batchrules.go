package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
)

// BatchWaiter waits for the answer to a message in a batch: a goroutine of a Router, or an adapter.
type BatchWaiter interface {
	// SetAnswer gets the answer, once, from any goroutine.
	SetAnswer(err error)
}

// Batched is a message that waits for a batch or is in one. Its first answer counts. The answer takes effect, while the batch
// continues, when all earlier messages of its key in the batch have an answer. A Batched is safe for concurrent use after Init.
type Batched struct {
	waiter BatchWaiter
	d      *Delivery       // nil for a message of another subscriber
	ctx    context.Context // its end takes the message out of the queue
	bytes  int
	key    uint64 // orders messages; 0 for none

	queue *Batches
	group *batchGroup   // in which it waits
	since time.Duration // when it came, counted from epoch

	batch              *Batch   // its mu guards the fields below
	before, after      *Batched // the neighbours with its key in the batch; nil after its answer has taken effect
	answer             error
	answered, released bool // it has an answer; the answer has taken effect
	tooLate            bool // the answer came after the end of its time, see Expired
	failed             bool // later messages of its key must not be settled

	onEnd func(handled bool) // nil for none
}

// Init prepares the message for the queue. The end of ctx takes it out of the queue, waiter gets its answer, d may be nil,
// and bytes is its size, if its source does not report a larger one.
func (m *Batched) Init(ctx context.Context, waiter BatchWaiter, d *Delivery, bytes int) {
	if d != nil {
		bytes = max(bytes, d.entry.size())
		m.key = d.entry.orderKey()
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

// Delivery returns the attempt at the message, or nil for a message of another subscriber.
func (m *Batched) Delivery() *Delivery { return m.d }

// Message implements [redeliver.BatchedMessage].
func (m *Batched) Message() redeliver.Message {
	if m.d == nil {
		return redeliver.Message{}
	}
	return redeliver.Message{State: m.d.State(), Headers: m.d.Headers(), Key: m.d.Key(), Body: m.d.Body()}
}

// OnEnd makes f the function that is called, once, before the source gets the message's answer. handled reports whether the batch
// function has handled the message. It is false if its answer is ignored because an earlier message of its key failed. OnEnd must be
// called before the message has an answer.
func (m *Batched) OnEnd(f func(handled bool)) { m.onEnd = f }

// OwnAnswer returns the message's answer. ok is false if it has none yet.
func (m *Batched) OwnAnswer() (ok bool, err error) {
	m.batch.mu.Lock()
	defer m.batch.mu.Unlock()
	return m.answered, m.answer
}

// Answer answers as a handler of single messages does with the error that it returns. It reports whether the answer counts:
// it does not if the message already has an answer, or if its Timeout or its batch is over. An answer after the end of the
// batch is reported to the sink.
func (m *Batched) Answer(err error) bool {
	b := m.batch
	b.mu.Lock()
	if b.over || m.answered {
		late := b.over
		b.mu.Unlock()
		if late {
			m.reportLate(err)
		}
		return false
	}
	if m.d != nil {
		m.d.sharedBatch.Store(0)
	}
	counts := m.setAnswerLocked(err)
	var room [8]*Batched // an allocation for each answer would cost more
	released := room[:0]
	if counts {
		released = m.releaseLocked(released)
	}
	b.mu.Unlock()
	if !counts {
		m.deliverLate(err) // its stuck handler has returned
	}
	deliverAnswers(released)
	return counts
}

// setAnswerLocked sets the answer and stops the clock of the attempt. It returns false if the time of the attempt is over and its
// message is settled without the answer, see Expired.
func (m *Batched) setAnswerLocked(err error) (counts bool) {
	m.answered, m.answer = true, err
	if m.d != nil {
		m.tooLate = !m.d.claimAnswer()
		m.failed = m.key != 0 && m.queue.ordered && (err != nil || m.d.timedOut)
	}
	return !m.tooLate
}

// runAgain makes a message run again, uncounted. It is in no batch.
func (m *Batched) runAgain() {
	m.d.answerIgnored = true
	m.waiter.SetAnswer(errEarlierFailed)
}

// releaseLocked lets the answer take effect, and then those of later messages of its key, as far as all messages before them have an
// answer. It appends them to released, for deliverAnswers.
func (m *Batched) releaseLocked(released []*Batched) []*Batched {
	for m != nil && m.answered && !m.tooLate && !m.released && (m.before == nil || m.before.released) {
		m.released = true
		switch {
		case m.before != nil && m.before.failed:
			m.failed, m.d.answerIgnored = true, true
		case m.failed:
			m.holdKeyLocked()
		case m.answer == nil && m.d != nil:
			m.d.acked.Store(true)
		}
		released = append(released, m)
		next := m.after
		if m.before != nil {
			m.before.after = nil
		}
		m.after = nil // m.before of next still shows how this one ended
		m = next
	}
	return released
}

// deliverLate delivers an answer that came after its message was settled.
func (m *Batched) deliverLate(err error) {
	m.end(err)
	m.waiter.SetAnswer(err)
}

// end calls the function of OnEnd.
func (m *Batched) end(err error) {
	if m.onEnd != nil {
		m.onEnd(err == nil && (m.d == nil || !m.d.answerIgnored))
	}
}

// endAll ends messages at the same time, because the function of OnEnd may ask a server.
func endAll(released []*Batched) {
	var all sync.WaitGroup
	for _, m := range released {
		all.Go(func() { m.end(m.answer) })
	}
	all.Wait()
}

// deliverAnswers delivers the answers of messages that were released. A failure may have to wait for the client of the broker, so
// another goroutine delivers it.
func deliverAnswers(released []*Batched) {
	if slices.ContainsFunc(released, func(m *Batched) bool { return m.onEnd != nil }) {
		endAll(slices.Clone(released)) // released is on the stack otherwise
	}
	var failures []*Batched
	for _, m := range released {
		switch {
		case m.d != nil && m.d.answerIgnored:
			m.waiter.SetAnswer(errEarlierFailed)
		case m.answer == nil:
			m.waiter.SetAnswer(nil)
		default:
			failures = append(failures, m)
		}
	}
	if len(failures) > 0 {
		go func() {
			for _, m := range failures {
				m.waiter.SetAnswer(m.answer)
			}
		}()
	}
}

// reportLate reports to the sink an answer that came after the end of the batch.
func (m *Batched) reportLate(err error) {
	if m.d == nil || m.d.sub.Sink == nil {
		return
	}
	why := redeliver.ErrBatchEnded
	if err != nil {
		why = fmt.Errorf("%w: %w", redeliver.ErrBatchEnded, err)
	}
	m.d.sub.emitStuck(0, func(n int64) redeliver.Event {
		return redeliver.LateAnswer{State: m.d.State(), Err: why, Stuck: n}
	})
}

// Expired returns the answer for the whole batch if there is one, and otherwise timeout. The batch's
// context ends before its first message is settled.
func (m *Batched) Expired(timeout error) error {
	b := m.batch
	b.Expire(timeout)
	b.mu.Lock()
	err := timeout
	if b.called {
		err = b.answer
	}
	ownLast(b.messages)
	if m.key != 0 && m.queue.ordered && err != nil { // the messages before it without an answer expire, too
		m.failed = true
		if m.before != nil && (!m.before.released || m.before.failed) {
			m.d.answerIgnored = true
		} else {
			m.holdKeyLocked()
		}
	}
	m.released = true
	released := m.after.releaseLocked(nil)
	m.after = nil
	b.mu.Unlock()
	deliverAnswers(released)
	return err
}

// holdKeyLocked keeps later messages of its key from running in another batch until this one has ended.
func (m *Batched) holdKeyLocked() {
	if !m.d.holdsKey {
		m.d.holdsKey = true
		m.holdKey()
	}
}

// holdExpiredLocked is holdKeyLocked for a message whose time is over, perhaps before Expired is called. The keys of its batch are
// freed next.
func (m *Batched) holdExpiredLocked() {
	if m.key != 0 && m.queue.ordered && !m.released && (m.before == nil || m.before.released && !m.before.failed) {
		m.holdKeyLocked()
	}
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

// Batch is one call of a batch function, and the context of that call. The context ends after the policy's Timeout, counted from
// the call, or when all messages of the batch were lost to this process. A Batch is safe for concurrent use.
type Batch struct {
	LazyContext
	// Origin and Group name the subscription. They are empty for messages of other subscribers.
	Origin, Group string

	queue   *Batches
	keys    []uint64                    // of its messages
	counted atomic.Bool                 // the batch counts in queue.running
	span    atomic.Pointer[handlerSpan] // of the call; nil without a tracer

	mu     sync.Mutex
	over   bool  // the function has ended
	called bool  // Answer was called
	answer error // of that call

	messages      []*Batched
	began, until  time.Duration // counted from epoch; until 0: no Timeout
	expiry, stuck *time.Timer   // nil: no Timeout
}

// Answer takes an answer for every message that has none of its own when the function returns, whatever the function returns. It
// reports whether the call counts: it does not after another one, or after the end of the batch.
func (b *Batch) Answer(answer error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || b.called {
		return false
	}
	b.called, b.answer = true, answer
	return true
}

// ownLast makes the answer of the batch that of one message, if all others have an answer of their own.
func ownLast(all []*Batched) {
	var last *Batched
	for _, m := range all {
		if m.answered {
			continue
		}
		if last != nil {
			return
		}
		last = m
	}
	if last != nil && last.d != nil {
		last.d.sharedBatch.Store(0)
	}
}

// settle answers for every message that has no answer: as AckAll or RetryAll says, or otherwise as the function returned.
func (b *Batch) settle(all []*Batched, err error) {
	b.mu.Lock()
	if b.called {
		err = b.answer
	}
	b.over = true
	b.messages = nil // a message keeps its batch in memory, which must not keep the other messages
	var late []*Batched
	released := make([]*Batched, 0, len(all))
	ownLast(all)
	for _, m := range all {
		if !m.answered && !m.setAnswerLocked(err) {
			late = append(late, m)
		}
	}
	for _, m := range all {
		released = m.releaseLocked(released)
	}
	for _, m := range late {
		m.holdExpiredLocked()
	}
	b.mu.Unlock()
	for _, m := range late {
		m.deliverLate(err)
	}
	deliverAnswers(released)
}

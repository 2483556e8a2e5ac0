package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/observe"
)

// epoch is the time from which the engine counts durations. time.Since(epoch) is cheaper than time.Now: it reads one clock, not
// two.
var epoch = time.Now()

// waitsForBatch is the start time of an attempt that waits for its batch.
const waitsForBatch time.Duration = -1

// errGoexit is the failure of a handler that ended its goroutine by runtime.Goexit, as t.FailNow does.
var errGoexit = errors.New("the handler called runtime.Goexit")

// panicError returns the failure of a handler that has not returned. v is what recover returned.
func panicError(v any) error {
	if v == nil {
		v = errGoexit
	}
	return &redeliver.PanicError{Value: v, Stack: debug.Stack()}
}

// Run runs one attempt: it checks whether the message may run, calls handle, and keeps a failure until Ack. ctx is d or a context
// below it; the handler's context is ctx or one below that. Run must be called at most once for a delivery. The caller must call
// Ack after it, or make the goroutine call it that delivered the message, also when handle ends the goroutine (runtime.Goexit).
// succeeded reports whether the handler's success counts. err is nil unless the message was lost to this process.
func (d *Delivery) Run(ctx context.Context, handle func(context.Context) error) (succeeded bool, err error) {
	d.begun = true
	d.sub.RecordMiddleware()
	if d.Lost() { // its session ended while it was ready
		return false, d.abandon(nil)
	}
	if err := d.Invalid(); err != nil {
		d.keepFailure(err)
		return false, nil
	}
	ctx = d.begin(ctx)
	var answer error
	returned := false
	defer func() {
		if !returned {
			answer = panicError(recover())
		}
		succeeded, err = d.keepAnswer(answer)
	}()
	answer = handle(ctx)
	returned = true
	return false, nil // the deferred call sets both
}

// keepAnswer ends an attempt with its handler's answer, and keeps a failure. For its results, see Run.
func (d *Delivery) keepAnswer(err error) (succeeded bool, lost error) {
	counts, answer := d.takeAnswer(err)
	switch {
	case !counts:
		return false, nil
	case answer == nil:
		d.EndSpan(observe.OutcomeSucceeded, nil)
		return true, nil
	case d.form != nil && d.form.Answered(): // its return value does not count
		d.EndSpan(observe.OutcomeSettled, answer)
		return true, nil
	case d.Lost():
		return false, d.abandon(answer)
	}
	d.keepFailure(answer)
	return false, nil
}

// keepFailure keeps the failure of the attempt for Ack. The pointer is atomic because a handler of Watermill messages may have
// acked its message in another goroutine.
func (d *Delivery) keepFailure(err error) { d.failure.Store(&err) }

// begin starts the attempt's clock and its span, and returns the handler's context.
func (d *Delivery) begin(ctx context.Context) context.Context {
	if !d.sub.gathers.Load() {
		ctx = d.BeginSpan(ctx)
	}
	if w := d.sub.watch; w != nil {
		w.add(d)
	} else {
		d.began = time.Since(epoch)
	}
	return ctx
}

// takeAnswer stops the clock of the attempt, and returns its answer. counts is false if the message was settled without
// the handler's answer.
func (d *Delivery) takeAnswer(err error) (counts bool, answer error) {
	if !d.claimAnswer() {
		d.reportLateAnswer(err)
		return false, nil
	}
	if d.answerIgnored {
		d.endUnsettled()
		return false, nil
	}
	if d.timedOut { // the answer does not count
		err = &redeliver.TimeoutError{After: d.ends - d.began}
	}
	if d.began != waitsForBatch { // otherwise it expired or was lost before its batch began
		d.sub.reportAttempted(d, err, d.began)
	}
	return true, err
}

// Ack ends the attempt: it carries out the policy's decision about the failure that Run has kept, or else the handler has
// succeeded. It does nothing if another goroutine has claimed the message's end.
func (d *Delivery) Ack() {
	if !d.failKept() {
		d.succeed()
	}
}

// failKept carries out the policy's decision about the failure that Run has kept, if there is one.
func (d *Delivery) failKept() bool {
	err := d.failure.Load()
	if err != nil {
		d.Fail(*err)
	}
	return err != nil
}

// Fail ends the attempt with a failure, unless another goroutine has claimed the message's end: it carries out the policy's
// decision.
func (d *Delivery) Fail(err error) { _ = d.fail(err, false) } // the error says only that the message was lost

// Withdraw ends the attempt of a message that was not delivered to its handler.
func (d *Delivery) Withdraw() {
	d.runs = false
	_ = d.abandon(nil)
}

// Abandon ends the attempt of a message whose handler has not answered, because the engine was closed. The handler's own
// answer may come first.
func (d *Delivery) Abandon() {
	if !d.failKept() {
		_ = d.abandon(context.Cause(d))
	}
}

// FailLater carries out the policy's decision about a failure, for callers that cannot run the handler again at once: instead of
// an immediate retry the message waits for up to a millisecond. It returns false if the message was lost to this process.
func (d *Delivery) FailLater(err error) bool { return d.fail(err, true) == nil }

// fail carries out the policy's decision about a failure, unless another goroutine has claimed the message's end. For running,
// see settleFailure. fail returns an error only if the message was lost to this process.
func (d *Delivery) fail(err error, running bool) error {
	if d.Lost() {
		return d.abandon(err)
	}
	if d.claim() {
		d.settleFailure(err, running)
	}
	return nil
}

// abandon ends a message that is lost to this process, unless another goroutine has claimed its end. It returns ErrAbandoned,
// with the cause.
func (d *Delivery) abandon(cause error) error {
	if d.claim() {
		d.abandonClaimed(cause)
	}
	if cause == nil {
		return ErrAbandoned
	}
	return fmt.Errorf("%w: %w", ErrAbandoned, cause)
}

// errEarlierFailed is why the answer for a message of a batch does not count.
var errEarlierFailed = errors.New("an earlier message of its key failed in its batch; it runs again, uncounted, after that one has ended")

// endUnsettled ends an attempt whose answer does not count, because an earlier message of its key has failed in its batch.
func (d *Delivery) endUnsettled() {
	if !d.claim() {
		return
	}
	if d.began != waitsForBatch {
		d.reportUncounted(errEarlierFailed)
	}
	d.entry.end(Ending{Kind: Unsettled})
}

// reportUncounted reports an attempt that does not count.
func (d *Delivery) reportUncounted(cause error) {
	d.EndSpan(observe.OutcomeAbandoned, cause)
	d.sub.abandoned.Add(1)
	d.sub.Emit(redeliver.Abandoned{State: d.State(), Err: cause})
}

// abandonClaimed is abandon for a caller that has claimed the message.
func (d *Delivery) abandonClaimed(cause error) {
	if cause != nil {
		d.reportUncounted(cause)
	} else {
		d.EndSpan(observe.OutcomeAbandoned, nil)
	}
	d.entry.end(Ending{Kind: Abandoned})
}

// settleFailure asks the policy and carries out its decision. The caller has claimed the message. running reports whether the
// handler may still run. Then the next attempt must not begin at once, and a blocking message loses its place, so that the
// others go on; an OrderThroughRetries message holds up its key only. A lane that drains begins no immediate retry: the attempt counts, and
// another process makes the next one.
func (d *Delivery) settleFailure(err error, running bool) {
	now := time.Now()
	dec := d.decideAndCount(err, now)
	if dec.Action == redeliver.ActionRetryNow && (running || d.entry.isDraining()) {
		dec.Action, dec.State.Due = redeliver.ActionRetryLater, limits.CeilMilli(now.UTC())
	}
	switch {
	case dec.Action == redeliver.ActionDeadLetter && d.sharedBatch.Load() != 0: // the error may be that of another message
		d.signal = signalFailure
		d.reportUncounted(fmt.Errorf("the batch failed as a whole; the message runs again, uncounted, in a batch of its own: %w", err))
		d.entry.end(Ending{Kind: Unsettled, Single: true})
	case dec.Action == redeliver.ActionRetryNow:
		d.endFailedSpan(dec, err)
		d.End(nil) // work that the handler started must not run beside the next attempt
		if d.holdsKey {
			d.signal = signalFailure
			d.entry.end(Ending{Kind: Unsettled, State: &dec.State})
			return
		}
		d.entry.runAgain(&dec.State)
	case d.sub.KeepsPlace && !d.displaced && (!running || d.sub.MaxInPlace > 0) && dec.Action != redeliver.ActionDeadLetter:
		d.stay(dec, err, now)
	default:
		d.moveFailed(dec, err)
	}
}

// stay makes the message wait in place. The messages behind it wait too.
func (d *Delivery) stay(dec *redeliver.Decision, cause error, now time.Time) {
	wait := dec.State.Due.Sub(now)
	switch maxWait := d.sub.MaxInPlace; {
	case maxWait > 0 && dec.Delay > maxWait && dec.Action == redeliver.ActionPostpone: // the policy, not a handler, asked for it
		dec.Delay, dec.State.Due = maxWait, limits.CeilMilli(now.UTC().Add(maxWait))
	case maxWait == 0:
		wait = min(max(wait, limits.MinBlock), limits.MaxBlock)
		dec.Delay, dec.State.Due = wait, limits.CeilMilli(now.UTC().Add(wait))
	case dec.Delay > maxWait: // Delay, not wait: due times are rounded up
		d.sub.Policy.RejectUnschedulable(dec, &redeliver.UnschedulableError{Wait: dec.Delay, Max: maxWait})
		d.moveFailed(dec, cause)
		return
	}
	d.endFailedSpan(dec, cause)
	d.stayUntilDue(dec, d.sub.Origin, cause)
}

// stayUntilDue ends the attempt of a message that waits in its source. where names the source.
func (d *Delivery) stayUntilDue(dec *redeliver.Decision, where string, cause error) {
	d.sub.reportWritten(dec, where, cause)
	d.signal = signalOf(dec, cause)
	d.entry.end(Ending{Kind: Stays, State: &dec.State})
}

// Nack ends the attempt of a message that was nacked. Without a failure that Run has kept, a publisher of the Router or another
// middleware nacked it. That counts as a failure. The message waits at least until the next millisecond, because its handler may
// still run.
func (d *Delivery) Nack() {
	if d.failKept() {
		return
	}
	if d.answerIgnored {
		d.endUnsettled()
		return
	}
	if d.Lost() || d.entry.isDraining() { // the end of the subscription may be the cause, so the attempt does not count
		if d.claim() {
			d.runs = false
			d.abandonClaimed(nil)
		}
		return
	}
	if !d.claim() {
		return
	}
	err := d.sub.nackError()
	if d.sub.NackDelay > 0 {
		err = redeliver.RetryAfter(err, d.sub.NackDelay)
	}
	d.settleFailure(err, true)
}

// lateHandler is the handler of an attempt that was settled without its answer.
type lateHandler struct {
	mu       sync.Mutex
	returned bool
	stuck    bool   // it was counted as stuck
	after    func() // called when the handler has returned; nil for none
}

// afterReturn calls f when the handler has returned.
func (h *lateHandler) afterReturn(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.returned {
		f()
	} else {
		h.after = f
	}
}

// StuckAfter is how long after its timeout a handler may still return without being counted as stuck: it may notice the
// end of its context and clean up.
const StuckAfter = time.Second

// takeOverLocked claims a message whose timeout is over, unless another goroutine has. If it returns true, the handler's answer
// no longer counts, and the caller must start settleExpired. It needs the watch's lock.
func (d *Delivery) takeOverLocked() bool {
	if !d.claim() {
		return false
	}
	d.late = &lateHandler{}
	return true
}

// settleExpired settles a message whose timeout is over. It runs in its own goroutine.
func (d *Delivery) settleExpired(timeout time.Duration) {
	var err error = &redeliver.TimeoutError{After: timeout}
	if d.batched != nil {
		err = d.batched.Expired(err)
	}
	d.Expire(&redeliver.TimeoutError{After: timeout})
	if !d.answerIgnored {
		d.sub.reportAttempted(d, err, d.began)
	}
	switch {
	case d.Lost():
		d.abandonClaimed(err)
	case d.answerIgnored:
		d.reportUncounted(errEarlierFailed)
		d.entry.end(Ending{Kind: Unsettled})
	case err == nil: // AckAll acked the whole batch
		d.EndSpan(observe.OutcomeSucceeded, nil)
		d.entry.end(Ending{Kind: Acked})
	default:
		d.settleFailure(err, true)
	}
	if d.form != nil {
		d.form.Settled()
	}
	time.AfterFunc(StuckAfter, func() { d.countStuck(timeout) })
}

// countStuck counts a handler that still runs although its message was settled.
func (d *Delivery) countStuck(timeout time.Duration) {
	h := d.late
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.returned {
		return
	}
	h.stuck = true
	d.sub.emitStuck(1, func(n int64) redeliver.Event {
		return redeliver.HandlerStuck{State: d.State(), Timeout: timeout, Stuck: n}
	})
}

// reportLateAnswer reports the answer of a handler whose message was already settled.
func (d *Delivery) reportLateAnswer(err error) {
	h := d.late
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.returned {
		return
	}
	h.returned = true
	if h.after != nil {
		h.after()
	}
	if h.stuck {
		d.sub.emitStuck(-1, func(n int64) redeliver.Event {
			return redeliver.LateAnswer{State: d.State(), Err: err, Stuck: n}
		})
	}
}

// StopClock stops the clock of an attempt whose message waits for its batch. It returns false if the attempt has already
// timed out.
func (d *Delivery) StopClock() bool {
	if w := d.sub.watch; w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.unlinkLocked(d)
		if d.late != nil || d.timedOut {
			return false
		}
	}
	d.began, d.ends = waitsForBatch, 0
	return true
}

// startClocks starts the clocks of gathered attempts, all of one subscription. It returns their watch, or nil if they have no
// timeout.
func startClocks(now time.Time, all []*Batched) (w *watch) {
	hasClock := func(m *Batched) bool { return m.d != nil && m.d.begun }
	first := slices.IndexFunc(all, hasClock)
	if first < 0 {
		return nil
	}
	if w = all[first].d.sub.watch; w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
	}
	at := now.Sub(epoch)
	for _, m := range all {
		if !hasClock(m) {
			continue
		}
		d := m.d
		d.began = at
		if w != nil {
			d.answered = false // in an earlier batch: a middleware within Retry may call the handler again
			w.insertLocked(d, at+w.timeout)
		}
	}
	return w
}

// restartClock restarts the clock of an attempt that was gathered but is in no batch. The attempt of a lost message is not reported.
func (d *Delivery) restartClock() {
	if d.Lost() {
		return
	}
	if w := d.sub.watch; w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
	}
	d.began = time.Since(epoch)
}

// claimAnswer stops the clock of the attempt. It reports whether the handler's answer counts: it does not after a timeout.
func (d *Delivery) claimAnswer() bool {
	if w := d.sub.watch; w != nil {
		w.remove(d)
	}
	return d.late == nil
}

var _ context.Context = (*Delivery)(nil)

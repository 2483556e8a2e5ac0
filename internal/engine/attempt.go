package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// Task is a message in the hands of a handler, in whatever form the handler takes it: middleware.Retry has one for a
// Watermill message, the engine one for the broker's own.
type Task interface {
	// Handle calls the handler, once, with ctx as its context or an ancestor of that, and returns its answer. It may panic.
	Handle(ctx context.Context) error
	// Describe is the message as Policy.Invalid and tracers see it; nil and nil where it cannot be read.
	Describe() (headers redeliver.Headers, body []byte)
	// Answered reports whether the handler itself has settled the message, where it can: its first answer counts, and
	// not what it returns.
	Answered() bool
	// Expired is the answer of an attempt whose time is over: err, where nothing else was said before.
	Expired(err error) error
	// Settled is called when the message was settled in the stead of its handler, from another goroutine than Handle,
	// which may still run.
	Settled()
}

// epoch is where the clock of attempts begins. To ask how long ago it was reads one clock; time.Now reads two.
var epoch = time.Now()

// waiting stands in the place of an attempt's beginning while it waits to be handled with others.
const waiting time.Duration = -1

// errGoexit is the failure of a handler that ended its goroutine by runtime.Goexit, as t.FailNow does.
var errGoexit = errors.New("the handler called runtime.Goexit")

// Run runs one attempt: it checks what makes an attempt pointless, calls the handler below ctx, which is d or a descendant of
// it, and does what the policy says of a failure. It must be called at most once for a delivery. succeeded means that the
// message is to be acked. Otherwise its end is taken care of; the error is nil unless the message was lost to this process.
func (d *Delivery) Run(ctx context.Context, t Task) (succeeded bool, err error) {
	d.task = t
	d.sub.Answers()
	if d.Lost() { // it lay ready when its session ended
		return false, d.abandon(nil)
	}
	if err := d.check(); err != nil {
		d.Fail(err)
		return false, nil
	}
	goesOn, answer := d.hear(d.call(d.begin(ctx)))
	switch {
	case !goesOn:
		return false, nil
	case answer == nil || t.Answered():
		d.endSpan(spanOutcome(answer), answer)
		return true, nil
	default:
		return false, d.fail(answer)
	}
}

// spanOutcome is how the span of an attempt ends whose message the policy is not asked about.
func spanOutcome(answer error) redeliver.Outcome {
	if answer == nil {
		return redeliver.OutcomeSucceeded
	}
	return redeliver.OutcomeSettled
}

// begin starts the attempt's clock, and returns the handler's context.
func (d *Delivery) begin(ctx context.Context) context.Context {
	if d.sub.Tracer != nil && !d.sub.gathers.Load() {
		ctx = d.beginSpan(ctx)
	}
	if d.w = watchOf(d.sub); d.w != nil {
		d.Expires()
		d.w.add(d)
	} else {
		d.at = time.Since(epoch)
	}
	return ctx
}

// call runs the handler and turns a panic into an error.
func (d *Delivery) call(ctx context.Context) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			err = &redeliver.PanicError{Value: v, Stack: debug.Stack()}
			return
		}
		// runtime.Goexit ends the goroutine: nothing above is going to answer, so the message is settled from here.
		goesOn, answer := d.hear(&redeliver.PanicError{Value: errGoexit, Stack: debug.Stack()})
		if goesOn {
			_ = d.fail(answer)
			d.task.Settled()
		}
	}()
	err = d.task.Handle(ctx)
	returned = true
	return err
}

// hear takes the handler's answer. goesOn is false where the message was settled without it.
func (d *Delivery) hear(err error) (goesOn bool, answer error) {
	if d.w != nil {
		d.w.remove(d)
	}
	if d.over != nil {
		d.late(err)
		return false, nil
	}
	if d.warned { // whatever it answers
		err = &redeliver.TimeoutError{After: d.timeoutLocked()} // which does not change any more
	}
	if d.sub.Sink != nil && d.at != waiting { // else it expired before its batch began
		d.sub.attempted(d, err, d.at)
	}
	return true, err
}

// Fail does what the policy says of a failure, unless the message's end is taken care of.
func (d *Delivery) Fail(err error) { _ = d.fail(err) }

// FailLater is Fail where no handler can run at once: a retry that the policy makes in place waits a millisecond. It reports
// false when the message was lost to this process.
func (d *Delivery) FailLater(err error) bool {
	if d.Lost() {
		_ = d.abandon(err)
		return false
	}
	if d.claim() {
		d.settleFailure(err, true)
	}
	return true
}

// fail is Fail for an attempt. The error is that the message was lost.
func (d *Delivery) fail(err error) error {
	if d.Lost() {
		return d.abandon(err)
	}
	if d.claim() {
		d.settleFailure(err, false)
	}
	return nil
}

// abandon ends a message that is lost to this process.
func (d *Delivery) abandon(cause error) error {
	if d.claim() {
		d.abandoned(cause)
	}
	if cause == nil {
		return ErrAbandoned
	}
	return fmt.Errorf("%w: %w", ErrAbandoned, cause)
}

func (d *Delivery) abandoned(cause error) {
	d.endSpan(redeliver.OutcomeAbandoned, cause)
	if cause != nil {
		d.sub.Tell(redeliver.Abandoned{State: d.State(), Err: cause})
	}
	d.c.end(abandoned)
}

// settleFailure asks the policy and does what it says. The caller has claimed the message. running says that the handler may
// still run, so that the next attempt must not begin in place: a Blocking message loses its place then.
func (d *Delivery) settleFailure(err error, running bool) {
	now := time.Now()
	dec := d.decide(err, now)
	if dec.Action == redeliver.RetryNow && running {
		dec.Action, dec.State.Due = redeliver.RetryLater, redeliver.CeilMilli(now.UTC())
	}
	switch {
	case dec.Action == redeliver.RetryNow:
		d.decided(dec, err)
		d.End(nil) // what the handler has handed on must not go on beside the next attempt
		d.c.runAgain(&dec.State)
	case d.sub.Blocking && !d.displaced && !running && dec.Action != redeliver.DeadLetter:
		d.stay(dec, err, now)
	default:
		d.moveOn(dec, err)
	}
}

// stay has the message wait in place, and what is behind it wait with it.
func (d *Delivery) stay(dec *redeliver.Decision, cause error, now time.Time) {
	wait := dec.State.Due.Sub(now)
	switch longest := d.sub.MaxInPlace; {
	case longest > 0 && dec.Delay > longest && dec.Action == redeliver.Postponed: // no handler asked for that long
		dec.Delay, dec.State.Due = longest, redeliver.CeilMilli(now.UTC().Add(longest))
	case longest == 0:
		if dec.Delay > redeliver.MaxBlock {
			dec.State.Error = redeliver.Cut(fmt.Sprintf("a wait of %s is cut to %s, the most in Blocking order; the failure was: %s",
				dec.Delay, redeliver.MaxBlock, dec.State.Error), redeliver.MaxErrorText)
		}
		wait = min(max(wait, redeliver.MinBlock), redeliver.MaxBlock)
		dec.Delay, dec.State.Due = wait, redeliver.CeilMilli(now.UTC().Add(wait))
	case dec.Delay > longest: // not wait: due times are rounded up
		d.sub.Policy.Unschedulable(dec, &redeliver.UnschedulableError{Wait: dec.Delay, Max: longest})
		d.moveOn(dec, cause)
		return
	}
	d.decided(dec, cause)
	d.sub.written(dec, d.sub.Origin, cause)
	d.stayUntilDue(dec)
}

func (d *Delivery) stayUntilDue(dec *redeliver.Decision) {
	d.said = ill
	d.c.stay(&dec.State)
}

// nacked is the end of a message that was nacked without an error: by a publisher of the Router, or another middleware. It
// is an attempt like an error. No handler can run at once for it, so it waits at least for the next millisecond.
func (d *Delivery) nacked() {
	if d.Lost() || d.c.isDraining() { // the end of the subscription is why, or may be: it comes back uncounted
		if d.claim() {
			d.runs = false
			d.abandoned(nil)
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

// Deadline implements [context.Context]. It is computed when somebody asks.
func (d *Delivery) Deadline() (time.Time, bool) {
	outer, ok := d.Lazy.Deadline()
	if d.w == nil {
		return outer, ok
	}
	d.w.mu.Lock()
	at, timeout := d.at, d.timeoutLocked()
	d.w.mu.Unlock()
	if at == waiting {
		return outer, ok
	}
	now := time.Now()
	if own := now.Add(timeout - (now.Sub(epoch) - at)); !ok || own.Before(outer) {
		return own, true
	}
	return outer, true
}

// overrun is an attempt that is settled without the handler's answer.
type overrun struct {
	mu       sync.Mutex
	returned bool // the handler has come back
	stuck    bool // it was counted as stuck before
}

// StuckAfter is the time that a handler has to come back after its message has moved on: one that heeds its context and only
// cleans up is not stuck.
const StuckAfter = time.Second

// takeOver is called by the watch, with its lock held, when the timeout is over and the handler has not answered. It reports
// whether the handler's answer no longer counts; then expire must be called.
func (d *Delivery) takeOver() bool {
	if !d.claim() {
		return false
	}
	d.over = &overrun{}
	return true
}

// expire settles a message whose attempt is over time, in a goroutine of its own.
func (d *Delivery) expire(timeout time.Duration) {
	err := d.task.Expired(&redeliver.TimeoutError{After: timeout})
	d.Expire(&redeliver.TimeoutError{After: timeout})
	if d.sub.Sink != nil {
		d.sub.attempted(d, err, d.at)
	}
	switch {
	case d.Lost():
		d.abandoned(err)
	case err == nil: // of a batch that was acked as a whole
		d.endSpan(redeliver.OutcomeSucceeded, nil)
		d.c.end(acked)
	default:
		d.settleFailure(err, true)
	}
	d.task.Settled()
	time.AfterFunc(StuckAfter, func() { d.overdue(timeout) })
}

// overdue counts a handler that still runs although its message has moved on.
func (d *Delivery) overdue(timeout time.Duration) {
	o := d.over
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.returned {
		return
	}
	o.stuck = true
	d.sub.tellStuck(1, func(n int64) redeliver.Event {
		return redeliver.HandlerStuck{State: d.State(), Timeout: timeout, Stuck: n}
	})
}

// late is the answer of a handler whose message was settled without it.
func (d *Delivery) late(err error) {
	o := d.over
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.returned {
		return
	}
	o.returned = true
	if o.stuck {
		d.sub.tellStuck(-1, func(n int64) redeliver.Event {
			return redeliver.LateAnswer{State: d.State(), Err: err, Stuck: n}
		})
	}
}

// Gather stops the clock of an attempt whose message waits to be handled with others. It reports false when the attempt's
// time was over before.
func (d *Delivery) Gather() bool {
	if d.w == nil {
		d.at = waiting
		return true
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.w.unlinkLocked(d)
	if d.over != nil || d.warned {
		return false
	}
	d.extension.stop()
	d.extension = nil
	d.at = waiting
	return true
}

// beginGathered starts the clocks of gathered attempts, all of one subscription.
func beginGathered(now time.Time, all []*Batched) {
	at := now.Sub(epoch)
	var w *watch
	for _, m := range all {
		d := m.d
		if d == nil || d.task == nil {
			continue
		}
		if w == nil && d.w != nil {
			w = d.w
			w.mu.Lock()
			defer w.mu.Unlock()
		}
		d.at = at
		if w != nil {
			w.appendLocked(d)
		}
	}
}

// leaveBatch is the end of a gathered attempt that never began.
func (d *Delivery) leaveBatch() {
	if d.w != nil {
		d.w.mu.Lock()
		defer d.w.mu.Unlock()
	}
	d.at = time.Since(epoch)
}

// ClaimAnswer takes the attempt from the watch. It reports whether what the handler answers counts: not when the attempt's
// time was over before.
func (d *Delivery) ClaimAnswer() bool {
	if d.w != nil {
		d.w.remove(d)
	}
	return d.over == nil
}

// Timeout is the time that the attempt may take; 0 for any.
func (d *Delivery) Timeout() time.Duration {
	if d.w == nil {
		return 0
	}
	return d.w.timeout
}

var _ context.Context = (*Delivery)(nil)

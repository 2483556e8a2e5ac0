package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"time"

	"github.com/redeliver/redeliver"
)

// Task is a message in the hands of a handler, in whatever form the handler
// takes it: the seam between what an attempt is and who runs it. middleware.Retry
// has one for a Watermill message, an adapter one for its broker's own.
type Task interface {
	// Handle calls the handler, once, with the attempt as its context or an
	// ancestor of that, and returns its answer. It may panic.
	Handle(a *Attempt) error
	// Describe is the message as Policy.Invalid is to see it; nil and nil where it
	// cannot be read, which its attempt is to say.
	Describe() (headers redeliver.Headers, body []byte)
	// Answered tells whether the handler itself has settled the message, where
	// it can: then its first answer counts, and not what it returns.
	Answered() bool
	// Expired is the answer of an attempt whose time is over: err, where
	// nothing else was said before.
	Expired(err error) error
	// Settle settles the message in the stead of a handler that is out of time
	// or whose goroutine has ended: acked, when it has moved on or its answer
	// was nil, or not, when it is lost to this process. It is called from
	// another goroutine than Handle, which may still run.
	Settle(acked bool)
}

// Attempt is one run of a handler for one message: the context that it sees, its
// place in the watch over timeouts, and who settles the message. Its zero value
// is ready for Run; embed it in what a message needs anyway.
type Attempt struct {
	Lazy
	d    *Delivery
	task Task
	w    *watch        // over its Timeout; nil for none
	at   time.Duration // when it began, counted from epoch, or waiting. Guarded by the watch's lock
	// over is set by the one who takes the message out of the handler's hands;
	// nil while the handler may still answer. Guarded by the watch's lock, and
	// it does not change once the handler's goroutine has asked (see remove).
	over     *overrun
	answered bool // remove was called. Guarded like over
	warned   bool // its time is over, and its handler may still answer. Guarded like over

	prev, next *Attempt // in the watch's list, guarded by its lock
}

// Outcome is what is left to do after an attempt.
type Outcome uint8

// The outcomes.
const (
	Succeeded Outcome = iota // the message is to be acked
	Again                    // run again at once, in place, under the next delivery
	Moved                    // it was written elsewhere and is to be acked; or, with an error, it is lost to this process
	Settled                  // it was settled by its handler, or in the handler's stead; the error, if any, is what there is to say of it
)

// epoch is where the clock of the attempts begins. To ask how long ago it was
// reads one clock; time.Now reads two, and would be a quarter of an attempt.
var epoch = time.Now()

// waiting stands in the place of the time at which an attempt began whose
// handler has not: it is to handle several messages at once, and gathers them.
const waiting time.Duration = -1

// errGoexit is what a handler is said to have panicked with that ended its
// goroutine by runtime.Goexit, as t.FailNow does.
var errGoexit = errors.New("the handler called runtime.Goexit")

// Run runs one attempt of d's message below outer, which is d or a descendant:
// it asks Policy.Invalid, calls the handler, tells the sink, and does what the
// policy says of a failure. After a time-out it returns only when the message is
// settled, and no sooner than the handler. When the outcome is Again, the caller
// runs another Attempt of next, below next.Under(outer), of the message as it
// came. Run must be called once.
func (a *Attempt) Run(outer context.Context, d *Delivery, t Task) (o Outcome, next *Delivery, err error) {
	a.d, a.task = d, t
	d.Sub.Answers()
	if d.Sub.Policy.Invalid != nil {
		if err := d.Invalid(t.Describe()); err != nil {
			return d.Fail(err)
		}
	}
	err = a.do(outer)
	return a.outcome(err)
}

// outcome is what is left to do after an answer that was heard.
func (a *Attempt) outcome(err error) (o Outcome, next *Delivery, _ error) {
	switch {
	case a.over != nil:
		return Settled, nil, a.over.verdict
	case err == nil:
		a.d.EndSpan(redeliver.OutcomeSucceeded, nil)
		return Succeeded, nil, nil
	case a.task.Answered():
		a.d.EndSpan(redeliver.OutcomeSettled, err)
		return Settled, nil, err
	default:
		a.d.ran.Store(a)
		return a.d.Fail(err)
	}
}

// Enter is the first part of Run for a message that is to be handled with others,
// and that no goroutine waits for: its clock stands still, as after Gather, until
// BeginAll. Answer is the last part. What is between, and Policy.Invalid before,
// is the caller's to do.
func (a *Attempt) Enter(outer context.Context, d *Delivery, t Task) {
	a.d, a.task, a.at = d, t, waiting
	d.Sub.Answers()
	a.Init(outer, time.Time{})
	if a.w = watchOf(d.Sub); a.w != nil {
		a.Expires()
	}
}

// Answer is what Run does when the handler has answered. It may take as long.
func (a *Attempt) Answer(err error) (o Outcome, next *Delivery, _ error) {
	return a.outcome(a.hear(err))
}

// succeeded is Answer for a success, and takes no time. Where it is false that does
// not count, and is to be given to Answer, too.
func (a *Attempt) succeeded() bool {
	if !a.Claim() || a.warned {
		return false
	}
	a.tell(nil)
	return true
}

// do runs the handler under the attempt's context. After a time-out it returns
// only when the watch has settled the message; a.over tells.
func (a *Attempt) do(outer context.Context) error {
	if sub := a.d.Sub; sub.Tracer != nil && !sub.gathers.Load() {
		outer = a.beginSpan(outer)
	}
	a.at = time.Since(epoch)
	a.Init(outer, time.Time{})
	if a.w = watchOf(a.d.Sub); a.w != nil {
		a.Expires()
		a.w.add(a)
	}
	return a.hear(a.call())
}

// hear is the end of the attempt: its handler has answered. The error that it
// returns is the attempt's.
func (a *Attempt) hear(err error) error {
	if a.w != nil {
		a.w.remove(a)
	}
	if a.over != nil {
		a.late(err)
		return nil
	}
	if a.warned { // whatever it answers
		err = &redeliver.TimeoutError{After: a.w.timeout}
	}
	if err != nil {
		// After a success the context lives on until the message is settled:
		// what was produced may carry it and is not published yet.
		a.End(nil)
	}
	a.tell(err)
	return err
}

// call runs the handler and turns a panic into an error.
func (a *Attempt) call() (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			err = &redeliver.PanicError{Value: v, Stack: debug.Stack()}
			return
		}
		// runtime.Goexit (a t.FailNow in a handler) ends the goroutine: nobody
		// above is going to answer, so the message is settled from here.
		a.exited(&redeliver.PanicError{Value: errGoexit, Stack: debug.Stack()})
	}()
	err = a.task.Handle(a)
	returned = true
	return err
}

// tell reports the attempt's end.
func (a *Attempt) tell(err error) {
	if a.d.Sub.Sink != nil {
		a.d.Sub.attempted(a.d, err, a.at)
	}
}

// Fail does what the policy says of the failure of an attempt, or of a message
// that cannot have one: the outcome is Again or Moved.
func (d *Delivery) Fail(err error) (o Outcome, next *Delivery, _ error) {
	if d.Lost() {
		d.Sub.abandoned(d, err)
		return Moved, nil, fmt.Errorf("%w: %w", ErrAbandoned, err)
	}
	dec := d.Decide(err, time.Now())
	switch {
	case dec.Action == redeliver.RetryNow:
		d.decided(dec, err)
		return Again, d.After(dec.State), nil
	case d.Sub.Blocking && !d.Displaced && dec.Action != redeliver.DeadLetter:
		return d.block(dec, err)
	default:
		return Moved, nil, d.Sub.Forward(d, dec, err)
	}
}

// Invalid asks Policy.Invalid, which must be set, whether the message must no
// longer run; a panic of it is an answer too.
func (d *Delivery) Invalid(headers redeliver.Headers, body []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &redeliver.InvalidError{Err: &redeliver.PanicError{Value: v, Stack: debug.Stack()}}
		}
	}()
	if headers == nil && body == nil {
		return nil
	}
	var m redeliver.Message
	m.Headers, m.Body = headers, body
	d.readState(&m.State)
	if k, ok := d.Record.(Keyed); ok {
		m.Key = k.MessageKey()
	}
	if err := d.Sub.Policy.Invalid(m); err != nil {
		return &redeliver.InvalidError{Err: err}
	}
	return nil
}

// Delivery is the delivery that the attempt is of.
func (a *Attempt) Delivery() *Delivery { return a.d }

// Timeout is the time that the attempt may take; 0 for any.
func (a *Attempt) Timeout() time.Duration {
	if a.w == nil {
		return 0
	}
	return a.w.timeout
}

// Deadline implements [context.Context]. It is reckoned when somebody asks.
func (a *Attempt) Deadline() (time.Time, bool) {
	outer, ok := a.Lazy.Deadline()
	if a.w == nil {
		return outer, ok
	}
	a.w.mu.Lock()
	at := a.at
	a.w.mu.Unlock()
	if at == waiting {
		return outer, ok
	}
	now := time.Now()
	if own := now.Add(a.w.timeout - (now.Sub(epoch) - at)); !ok || own.Before(outer) {
		return own, true
	}
	return outer, true
}

// Gather stops the clock of an attempt whose message waits for others, to be
// handled with them. It is false when the attempt's time was over before.
func (a *Attempt) Gather() bool {
	if a.w == nil {
		a.at = waiting
		return true
	}
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	a.w.drop(a)
	if a.over != nil {
		return false
	}
	a.at = waiting
	return true
}

// BeginAll starts the clocks of gathered attempts, all of one subscription.
func BeginAll(now time.Time, all iter.Seq[*Attempt]) {
	at := now.Sub(epoch)
	var w *watch
	for a := range all {
		if w == nil && a.w != nil {
			w = a.w
			w.mu.Lock()
			defer w.mu.Unlock()
		}
		a.at = at
		if w != nil {
			w.append(a)
		}
	}
}

// Leave is the end of a gathered attempt that never began.
func (a *Attempt) Leave() { a.set(time.Since(epoch)) }

func (a *Attempt) set(at time.Duration) {
	if a.w != nil {
		a.w.mu.Lock()
		defer a.w.mu.Unlock()
	}
	a.at = at
}

// Claim takes the attempt from the watch: what the handler answers counts. It is
// false when the watch was first.
func (a *Attempt) Claim() bool {
	if a.w != nil {
		a.w.remove(a)
	}
	return a.over == nil
}

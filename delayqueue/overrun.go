package delayqueue

import (
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// overrun is an attempt that is settled without the handler's answer.
type overrun struct {
	settled chan struct{} // closed when verdict stands
	verdict error         // nil when the message is to be acked

	mu       sync.Mutex
	returned bool // the handler has come back
	stuck    bool // it was counted as stuck before
}

// StuckAfter is the time that a handler has to come back after its message has
// moved on: one that heeds its context and only cleans up is not stuck.
const StuckAfter = time.Second

func newOverrun() *overrun { return &overrun{settled: make(chan struct{})} }

// expire is called by the watch, in a goroutine of its own, when the timeout is
// over and the handler has not answered.
func (a *Attempt) expire(timeout time.Duration) {
	err := &redeliver.TimeoutError{After: timeout}
	a.Expire(err)
	a.settle(a.task.Expired(err))
	time.AfterFunc(StuckAfter, func() { a.overdue(timeout) })
}

// exited settles the message of a handler whose goroutine ends.
func (a *Attempt) exited(err error) {
	if !a.Claim() { // the watch was first
		a.late(err)
		return
	}
	a.over = newOverrun()
	a.settle(err)
}

// settle does what a handler's error would have done, in its stead.
func (a *Attempt) settle(err error) {
	a.End(err)
	sub := a.d.Sub
	a.tell(err)
	if a.task.Answered() {
		a.d.EndSpan(redeliver.OutcomeSettled, err)
		a.over.verdict = err
		close(a.over.settled)
		return
	}
	if err == nil { // of a batch that was acked as a whole
		a.d.EndSpan(redeliver.OutcomeSucceeded, nil)
		close(a.over.settled)
		a.task.Settle(true)
		return
	}
	dec := a.d.Decide(err, time.Now())
	if dec.Action == redeliver.RetryNow {
		// The handler may still be at it: the next try must not run beside it
		// in place, so it goes the way of a delayed one.
		dec.Action = redeliver.RetryLater
		dec.State.Due = redeliver.CeilMilli(time.Now().UTC())
	}
	a.d.ran.Store(a)
	verdict := sub.Forward(a.d, dec, err)
	a.over.verdict = verdict
	close(a.over.settled)
	a.task.Settle(verdict == nil) // the handler's goroutine may still be inside it
}

// overdue counts a handler that still runs although its message has moved on.
func (a *Attempt) overdue(timeout time.Duration) {
	o := a.over
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.returned { // it ignores its context
		o.stuck = true
		a.d.Sub.tellStuck(1, func(n int64) redeliver.Event {
			return redeliver.HandlerStuck{State: a.d.State(), Timeout: timeout, Stuck: n}
		})
	}
}

// late is the end of an attempt that was settled without its handler.
func (a *Attempt) late(err error) {
	o := a.over
	<-o.settled
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.returned {
		return
	}
	o.returned = true
	if o.stuck {
		a.d.Sub.tellStuck(-1, func(n int64) redeliver.Event {
			return redeliver.LateAnswer{State: a.d.State(), Err: err, Stuck: n}
		})
	}
}

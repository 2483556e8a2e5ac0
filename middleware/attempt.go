package middleware

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// attempt is one run of a handler: the context it sees, its place in the watch
// over timeouts, and who settles the message. It is the one allocation of a
// successful message.
type attempt struct {
	delayqueue.Lazy
	retry   *retry
	d       *delayqueue.Delivery
	msg     *message.Message // the Router's, to be acked
	run     *message.Message // what the handler gets
	handler message.HandlerFunc
	start   time.Time

	// state says who won: the handler's goroutine, or the watch.
	state    atomic.Int32
	returned atomic.Bool   // the handler came back after the watch had won
	settled  chan struct{} // made by the watch, closed when verdict and stuck stand
	verdict  error
	stuck    bool

	prev, next *attempt // in the watch's list, guarded by its lock
}

const (
	running int32 = iota
	answered
	timedOut
)

// do runs the handler under the attempt's context. After a time-out it returns
// only when the watch has settled the message.
func (a *attempt) do(outer context.Context) (produced []*message.Message, err error) {
	a.start = time.Now()
	var deadline time.Time
	var w *watch
	if timeout := a.d.Sub.Policy.Timeout; timeout > 0 {
		w = a.retry.watch(timeout)
		deadline = a.start.Add(timeout)
	}
	a.Init(outer, deadline)
	a.run.SetContext(a)
	if w != nil {
		w.add(a)
	}
	produced, err = a.call()
	if !a.state.CompareAndSwap(running, answered) {
		a.late(err)
		return nil, nil
	}
	if w != nil {
		w.remove(a)
	}
	if err != nil {
		// After a success the context lives on until the message is settled:
		// what was produced may carry it and is not published yet.
		a.End(nil)
	}
	if a.d.Sub.Sink != nil {
		a.d.Sub.Sink.Event(redeliver.Attempted{State: a.d.State(), Err: err, Start: a.start, Took: time.Since(a.start)})
	}
	return produced, err
}

// call runs the handler and turns a panic into an error.
func (a *attempt) call() (produced []*message.Message, err error) {
	defer func() {
		// runtime.Goexit (a t.FailNow in a handler) ends the goroutine without
		// a value: there is nobody left to answer, so the watch will.
		if v := recover(); v != nil {
			produced, err = nil, &redeliver.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return a.handler(a.run)
}

func (a *attempt) expired() bool { return a.state.Load() == timedOut }

// expire is called by the watch, in a goroutine of its own, when the timeout is
// over and the attempt has lost. It does what a handler's error would have done.
func (a *attempt) expire(timeout time.Duration) {
	err := &redeliver.TimeoutError{After: timeout}
	a.End(err)
	sub, st := a.d.Sub, a.d.State()
	sub.Tell(redeliver.Attempted{State: st, Err: err, Start: a.start, Took: time.Since(a.start)})
	dec := sub.Decide(st, err, time.Now())
	if dec.Action == redeliver.RetryNow {
		// The handler may still be at it: the next try must not run beside it
		// in place, so it goes the way of a delayed one.
		dec.Action = redeliver.RetryLater
		dec.State.Due = redeliver.CeilMilli(time.Now().UTC())
	}
	a.verdict = sub.Forward(a.d, dec, err)
	if a.stuck = !a.returned.Load(); a.stuck { // it ignores its context
		sub.Tell(redeliver.HandlerStuck{State: st, Timeout: timeout, Stuck: a.retry.stuck.Add(1)})
	}
	close(a.settled)
	if a.verdict == nil {
		a.msg.Ack() // the Router's goroutine is still inside the handler
	} else {
		a.msg.Nack()
	}
}

// late is the end of an attempt that the watch has taken over.
func (a *attempt) late(err error) {
	a.returned.Store(true)
	<-a.settled
	if !a.stuck {
		return
	}
	a.d.Sub.Tell(redeliver.LateAnswer{State: a.d.State(), Err: err, Stuck: a.retry.stuck.Add(-1)})
}

package middleware

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
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
	d     *delayqueue.Delivery
	msg   *message.Message // the Router's, to be acked
	run   *message.Message // what the handler gets
	w     *watch           // over its Timeout; nil for none
	at    time.Duration    // when it began, counted from epoch, or waiting. Guarded by the watch's lock
	batch *BatchMessage    // nil, or what its handler has made of it
	// over is set by the one who takes the message out of the handler's hands;
	// nil while the handler may still answer. Guarded by the watch's lock, and
	// it does not change once the handler's goroutine has asked (see remove).
	over *overrun

	prev, next *attempt // in the watch's list, guarded by its lock
}

// overrun is an attempt that is settled without the handler's answer.
type overrun struct {
	settled chan struct{} // closed when verdict stands
	verdict error         // nil when the message is to be acked

	mu       sync.Mutex
	returned bool // the handler has come back
	stuck    bool // it was counted as stuck before
}

// epoch is where the clock of the attempts begins. To ask how long ago it was
// reads one clock; time.Now reads two, and would be a quarter of an attempt.
var epoch = time.Now()

// waiting stands in the place of the time at which an attempt began whose
// handler has not: it is to handle several messages at once, and gathers them.
const waiting time.Duration = -1

// stuckAfter is the time that a handler has to come back after its message has
// moved on: one that heeds its context and only cleans up is not stuck.
const stuckAfter = time.Second

// errGoexit is what a handler is said to have panicked with that ended its
// goroutine by runtime.Goexit, as t.FailNow does.
var errGoexit = errors.New("the handler called runtime.Goexit")

// do runs the handler under the attempt's context. After a time-out it returns
// only when the watch has settled the message; a.over tells.
func (a *attempt) do(outer context.Context, h message.HandlerFunc, w *watch) (produced []*message.Message, err error) {
	a.at = time.Since(epoch)
	a.Init(outer, time.Time{})
	a.run.SetContext(a)
	if w != nil {
		a.w = w
		a.Expires()
		w.add(a)
	}
	produced, err = a.call(h, w)
	if w != nil {
		w.remove(a)
	}
	if a.over != nil {
		a.late(err)
		return nil, nil
	}
	if err != nil {
		// After a success the context lives on until the message is settled:
		// what was produced may carry it and is not published yet.
		a.End(nil)
	}
	if a.d.Sub.Sink != nil {
		a.tell(err)
	}
	return produced, err
}

// tell reports the attempt's end.
func (a *attempt) tell(err error) {
	now := time.Now()
	took := now.Sub(epoch) - a.at
	a.d.Sub.Tell(redeliver.Attempted{State: a.d.State(), Err: err, Start: now.Add(-took), Took: took})
}

// Deadline implements [context.Context]. It is reckoned when somebody asks.
func (a *attempt) Deadline() (time.Time, bool) {
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

type attemptKey struct{}

// attemptOf returns the attempt that ctx belongs to, or nil.
func attemptOf(ctx context.Context) *attempt {
	if a, ok := ctx.(*attempt); ok {
		return a // to ask it takes a deep stack, which young goroutines have to grow
	}
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// Value implements [context.Context].
func (a *attempt) Value(key any) any {
	if _, ok := key.(attemptKey); ok {
		return a
	}
	return a.Lazy.Value(key)
}

// gather stops the clock of an attempt whose message waits for others. It is
// false when the watch was first.
func (a *attempt) gather(m *BatchMessage) bool {
	if !a.claim() {
		return false
	}
	a.batch = m
	a.set(waiting)
	return true
}

// begin starts the clock of a gathered attempt.
func (a *attempt) begin(now time.Duration) {
	a.set(now)
	if a.w != nil {
		a.w.add(a)
	}
}

// leave is the end of a gathered attempt that never began.
func (a *attempt) leave(now time.Duration) { a.set(now) }

func (a *attempt) set(at time.Duration) {
	if a.w != nil {
		a.w.mu.Lock()
		defer a.w.mu.Unlock()
	}
	a.at = at
}

// claim takes the attempt from the watch: what the handler answers counts. It is
// false when the watch was first.
func (a *attempt) claim() bool {
	if a.w != nil {
		a.w.remove(a)
	}
	return a.over == nil
}

// call runs the handler and turns a panic into an error.
func (a *attempt) call(h message.HandlerFunc, w *watch) (produced []*message.Message, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			produced, err = nil, &redeliver.PanicError{Value: v, Stack: debug.Stack()}
			return
		}
		// runtime.Goexit (a t.FailNow in a handler) ends the goroutine: nobody
		// above is going to answer, so the message is settled from here.
		a.exited(w, &redeliver.PanicError{Value: errGoexit, Stack: debug.Stack()})
	}()
	produced, err = h(a.run)
	returned = true
	return produced, err
}

// exited settles the message of a handler whose goroutine ends.
func (a *attempt) exited(w *watch, err error) {
	if w != nil {
		w.remove(a)
	}
	if a.over != nil { // the watch was first
		a.late(err)
		return
	}
	a.over = newOverrun()
	a.settle(err)
}

// expire is called by the watch, in a goroutine of its own, when the timeout is
// over and the handler has not answered.
func (a *attempt) expire(timeout time.Duration) {
	var err error = &redeliver.TimeoutError{After: timeout}
	a.Expire(err)
	if a.batch != nil {
		err = a.batch.expire(err)
	}
	a.settle(err)
	time.AfterFunc(stuckAfter, func() { a.overdue(timeout) })
}

// settle does what a handler's error would have done, in its stead.
func (a *attempt) settle(err error) {
	a.End(err)
	sub, st := a.d.Sub, a.d.State()
	a.tell(err)
	if a.answered() {
		a.over.verdict = err
		close(a.over.settled)
		return
	}
	if err == nil { // of a batch that was acked as a whole
		close(a.over.settled)
		a.msg.Ack()
		return
	}
	dec := sub.Decide(st, err, time.Now())
	if dec.Action == redeliver.RetryNow {
		// The handler may still be at it: the next try must not run beside it
		// in place, so it goes the way of a delayed one.
		dec.Action = redeliver.RetryLater
		dec.State.Due = redeliver.CeilMilli(time.Now().UTC())
	}
	a.over.verdict = sub.Forward(a.d, dec, err)
	close(a.over.settled)
	if a.over.verdict == nil {
		a.msg.Ack() // the Router's goroutine may still be inside the handler
	} else {
		a.msg.Nack()
	}
}

// overdue counts a handler that still runs although its message has moved on.
func (a *attempt) overdue(timeout time.Duration) {
	o := a.over
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.returned { // it ignores its context
		o.stuck = true
		a.d.Sub.Tell(redeliver.HandlerStuck{State: a.d.State(), Timeout: timeout, Stuck: a.d.Sub.Stuck.Add(1)})
	}
}

// late is the end of an attempt that was settled without its handler.
func (a *attempt) late(err error) {
	o := a.over
	<-o.settled
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.returned {
		return
	}
	o.returned = true
	if o.stuck {
		a.d.Sub.Tell(redeliver.LateAnswer{State: a.d.State(), Err: err, Stuck: a.d.Sub.Stuck.Add(-1)})
	}
}

// answered tells whether the handler itself has acked or nacked the message:
// the first answer wins, so what it returns later is no second one.
func (a *attempt) answered() bool {
	if a.run != a.msg { // the Router and the subscriber look at theirs
		if closed(a.run.Acked()) {
			a.msg.Ack()
		} else if closed(a.run.Nacked()) {
			a.msg.Nack()
		}
	}
	return closed(a.msg.Acked()) || closed(a.msg.Nacked())
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func newOverrun() *overrun { return &overrun{settled: make(chan struct{})} }

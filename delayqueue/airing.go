package delayqueue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// airing is one message in the hands of a Broadcast. It implements Task.
type airing struct {
	Aired
	b        *Broadcast
	attempt  Attempt // the first
	delivery Delivery
	behind   *airing // the next of the same key
	ended    atomic.Bool

	read    *message.Message        // for the attempt that is about to begin; nil where nobody has asked
	unread  error                   // why it cannot be read
	batched atomic.Pointer[Batched] // nil, or what a batch has made of the attempt
}

// aired is the context of one attempt of an airing: a middleware says there why it
// has failed, because a nack says nothing.
type aired struct {
	*Attempt
	x     *airing
	cause error

	mu       sync.Mutex
	gathered bool // it waits for a batch, which begins it
}

type airedKey struct{}

// Value implements [context.Context].
func (a *aired) Value(key any) any {
	if _, ok := key.(airedKey); ok {
		return a
	}
	return a.Attempt.Value(key)
}

// begin starts the clock when somebody has taken the message, who may have given it to
// a batch since.
func (a *aired) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.gathered {
		BeginAll(time.Now(), func(yield func(*Attempt) bool) { yield(a.Attempt) })
	}
}

// Explain says why the message of ctx, which is a broadcast consumer's, is about to
// be nacked. Of other messages it says nothing.
func Explain(ctx context.Context, cause error) {
	if a, ok := ctx.Value(airedKey{}).(*aired); ok {
		a.cause = cause
	}
}

// OnAir has the attempt that ctx belongs to, where it is of a broadcast consumer's
// message, wait for m's batch: see Gather. It is false when the attempt's time was over
// before. m must have been given to Init.
func (m *Batched) OnAir(ctx context.Context) bool {
	a, ok := ctx.Value(airedKey{}).(*aired)
	if !ok {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gathered = true; !a.Gather() {
		return false
	}
	m.a = a.Attempt
	a.x.batched.Store(m)
	return true
}

// Leave is for a message that no batch takes.
func (m *Batched) Leave() {
	if m.a != nil {
		m.a.Leave()
	}
}

// work is what a worker does with an airing.
func (x *airing) work() {
	if how, ended := Work(&x.attempt, &x.delivery, x); ended {
		x.end(how)
	}
}

// Handle implements [Task]. The attempt begins when somebody has taken the message.
func (x *airing) Handle(a *Attempt) error {
	x.batched.Store(nil)
	msg, err := x.read, x.unread
	if x.read, x.unread = nil, nil; msg == nil && err == nil { // nobody has read it
		msg, err = x.Record.Message()
	}
	if err != nil {
		return &redeliver.UndecodableError{Err: err}
	}
	ctx := &aired{Attempt: a, x: x}
	msg.SetContext(ctx)
	if !a.Gather() {
		return context.Cause(a)
	}
	lost := x.delivery.lost()
	select {
	case x.b.Out <- msg:
		ctx.begin()
	case <-lost:
		a.Leave()
		return ErrAbandoned
	}
	select { // not its time-out: who is over that is counted until it answers
	case <-msg.Acked():
		return nil
	case <-msg.Nacked():
		if ctx.cause != nil {
			return ctx.cause
		}
		return redeliver.ErrNacked
	case <-lost:
		return ErrAbandoned
	}
}

// Describe implements [Task]. What it has read is the attempt's.
func (x *airing) Describe() (redeliver.Headers, []byte) {
	if x.read, x.unread = x.Record.Message(); x.unread != nil {
		return nil, nil
	}
	return x.read.Metadata, x.read.Payload
}

// Answered implements [Task]: an ack is an answer, which Handle returns.
func (x *airing) Answered() bool { return false }

// Expired implements [Task].
func (x *airing) Expired(err error) error {
	if m := x.batched.Load(); m != nil {
		return m.Expired(err)
	}
	return err
}

// Settle implements [Task].
func (x *airing) Settle(acked bool) {
	switch {
	case !acked:
		x.end(Abandoned)
	case !x.delivery.Forwarded(): // of a batch that was acked as a whole; the others were told of, see Moved
		x.end(Acked)
	}
}

// Moved implements [Mover]: it was told that the message has failed.
func (x *airing) Moved(forwarded bool) {
	if forwarded {
		x.end(Forwarded)
	}
}

// end is the end of a message that has begun.
func (x *airing) end(how Ending) {
	if x.ended.Swap(true) {
		return
	}
	if how == Acked {
		x.b.sub.Committed(&x.delivery)
	}
	x.b.next(x)
	x.release(how != Abandoned)
}

func (x *airing) release(settled bool) {
	x.delivery.End(nil)
	x.Done(settled)
	<-x.b.hand
}

// unheard tells that a message of a broadcast consumer has failed.
func (s *Subscription) unheard(dec *redeliver.Decision, cause error) {
	st := dec.State
	st.Due = time.Time{}
	switch { // it is to be tried again, but not at once
	case st.Reason != "":
	case errors.Is(cause, redeliver.ErrTimeout): // its handler may still be at it
		st.Reason = redeliver.ReasonTimeout
	default:
		st.Reason = redeliver.ReasonExhausted
	}
	s.Tell(redeliver.BroadcastFailed{State: st, Err: cause})
}

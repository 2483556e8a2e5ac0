package delayqueue

import (
	"context"
	"errors"
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
}

// aired is the context of one attempt of an airing: a middleware says there why it
// has failed, because a nack says nothing.
type aired struct {
	*Attempt
	cause error
}

type airedKey struct{}

// Value implements [context.Context].
func (a *aired) Value(key any) any {
	if _, ok := key.(airedKey); ok {
		return a
	}
	return a.Attempt.Value(key)
}

// Explain says why the message of ctx, which is a broadcast consumer's, is about to
// be nacked. Of other messages it says nothing.
func Explain(ctx context.Context, cause error) {
	if a, ok := ctx.Value(airedKey{}).(*aired); ok {
		a.cause = cause
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
	msg, err := x.Record.Message()
	if err != nil {
		return &redeliver.UndecodableError{Err: err}
	}
	ctx := &aired{Attempt: a}
	msg.SetContext(ctx)
	if !a.Gather() {
		return context.Cause(a)
	}
	lost := x.delivery.lost()
	select {
	case x.b.Out <- msg:
		BeginAll(time.Now(), func(yield func(*Attempt) bool) { yield(a) })
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

// Describe implements [Task].
func (x *airing) Describe() (redeliver.Headers, []byte) {
	msg, err := x.Record.Message()
	if err != nil { // its attempt says so
		return message.Metadata{}, nil
	}
	return msg.Metadata, msg.Payload
}

// Answered implements [Task]: an ack is an answer, which Handle returns.
func (x *airing) Answered() bool { return false }

// Expired implements [Task].
func (x *airing) Expired(err error) error { return err }

// Settle implements [Task].
func (x *airing) Settle(acked bool) {
	if !acked { // otherwise it was told of, see Moved
		x.end(Abandoned)
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
		x.b.sub.Tell(redeliver.Committed{State: x.delivery.State()})
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

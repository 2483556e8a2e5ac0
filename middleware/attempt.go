package middleware

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// attempt is one run of a Watermill handler. It is the context that the handler
// sees, and the one allocation of a successful message.
type attempt struct {
	delayqueue.Attempt
	msg      *message.Message // the Router's, to be acked
	run      *message.Message // what the handler gets
	handler  message.HandlerFunc
	produced *[]*message.Message // by the handler; nil for nothing. Few handlers do
	batch    *BatchMessage       // nil, or what its handler has made of it
}

// Handle implements [delayqueue.Task].
func (a *attempt) Handle(*delayqueue.Attempt) error {
	a.run.SetContext(a)
	produced, err := a.handler(a.run)
	if len(produced) > 0 {
		a.keep(produced)
	}
	return err
}

// done is what the handler produced.
func (a *attempt) done() []*message.Message {
	if a.produced == nil {
		return nil
	}
	return *a.produced
}

func (a *attempt) keep(produced []*message.Message) { a.produced = &produced }

// Describe implements [delayqueue.Task].
func (a *attempt) Describe() (redeliver.Headers, []byte) { return a.run.Metadata, a.run.Payload }

// Expired implements [delayqueue.Task].
func (a *attempt) Expired(err error) error {
	if a.batch != nil {
		return a.batch.place.Expired(err)
	}
	return err
}

// Settle implements [delayqueue.Task].
func (a *attempt) Settle(acked bool) {
	if acked {
		a.msg.Ack()
	} else {
		a.msg.Nack()
	}
}

// Answered implements [delayqueue.Task]: the first answer wins, so what the
// handler returns later is no second one.
func (a *attempt) Answered() bool {
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

type attemptKey struct{}

// attemptOf returns the attempt that ctx belongs to, and its message's delivery, or nil.
// An attempt of another message may be found in a context that has the values of its
// publisher's: it is not this one's.
func attemptOf(ctx context.Context) (*attempt, *delayqueue.Delivery) {
	if a, ok := ctx.(*attempt); ok {
		// To ask it takes a deep stack, which makes the young goroutine of a Router grow its own:
		// that doubles BenchmarkRouter/batches.
		return a, a.Delivery()
	}
	d := delayqueue.FromContext(ctx)
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok && a.Delivery().Same(d) {
		return a, a.Delivery()
	}
	return nil, d
}

// Value implements [context.Context].
func (a *attempt) Value(key any) any {
	if _, ok := key.(attemptKey); ok {
		return a
	}
	return a.Attempt.Value(key)
}

// gather has the attempt wait for a batch. It is false when its time was over before.
func (a *attempt) gather(m *BatchMessage) bool {
	if !a.Gather() {
		return false
	}
	a.batch = m // nothing looks at it before the attempt begins again
	return true
}

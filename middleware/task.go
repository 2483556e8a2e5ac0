package middleware

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// task is the engine.Task of a Watermill handler, and the only allocation for a message that succeeds.
type task struct {
	msg      *message.Message
	handler  message.HandlerFunc
	produced []*message.Message // by the handler
	batch    *batchWaiter       // nil if the handler does not gather batches
}

// run runs one attempt. After a failure it returns nil: the engine carries out the decision, and the Router acks the message.
func run(d *engine.Delivery, h message.HandlerFunc, msg *message.Message) ([]*message.Message, error) {
	if d.Task() != nil { // within another Retry, which runs the attempt
		return h(msg)
	}
	outer := msg.Context()
	t := &task{msg: msg, handler: h}
	succeeded, err := d.Run(outer, t)
	if d.Sub().Tracer != nil {
		msg.SetContext(outer)
	}
	if !succeeded {
		return nil, err
	}
	return t.produced, nil
}

// Handle implements [engine.Task].
func (t *task) Handle(ctx context.Context) error {
	if ctx != t.msg.Context() {
		t.msg.SetContext(ctx)
	}
	produced, err := t.handler(t.msg)
	if err == nil { // the Router must not publish messages of a failed handler, even if it acked its message itself
		t.produced = produced
	}
	return err
}

// Describe implements [engine.Task].
func (t *task) Describe() (redeliver.Headers, []byte) { return t.msg.Metadata, t.msg.Payload }

// Answered implements [engine.Task].
func (t *task) Answered() bool { return closed(t.msg.Acked()) || closed(t.msg.Nacked()) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Batch returns the batch into which the handler has put the message, or nil.
func (t *task) Batch() *engine.Batch {
	if t.batch == nil {
		return nil
	}
	return t.batch.batched.Batch()
}

// Expired implements [engine.Task].
func (t *task) Expired(err error) error {
	if t.batch != nil {
		return t.batch.batched.Expired(err)
	}
	return err
}

// Settled implements [engine.Task]. The ack ends the wait of the subscriber.
func (t *task) Settled() { t.msg.Ack() }

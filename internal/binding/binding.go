// Package binding binds Watermill to the engine. A [Handler] is the engine's handler: it delivers each message to a Router and
// waits for its ack or nack, so the engine knows of a success when the Router has published what the message's handler produced.
// middleware.Retry runs the attempt in the Router's goroutine, by [Run]. The engine decides about a failure and writes the
// message in the goroutine of its own worker, as for a handler of records.
//
//	worker: Handle              Router: middleware.Retry
//	  converts the record
//	  delivers the message  ->    Run: begin, handler, its answer
//	                               success: the Router publishes, then acks or nacks
//	  Delivery.Ack or Nack  <-     failure: the delivery keeps it, and Run acks
//	  the engine decides, writes and settles
//
// A process may die at any arrow: nothing is settled before the last line. If the engine closes while a Router runs a message, the
// worker stops waiting, and the attempt does not count. After a timeout the engine settles and acks the message, although
// its handler may still run. A message whose Router has no middleware.Retry has no attempt, only an ack or a nack.
package binding

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// Handler delivers the messages of one Subscribe. It is safe for concurrent use; make it with [New].
type Handler[R any] struct {
	convert func(*driver.Message[R]) (*message.Message, error)
	// out is unbuffered: a message in a buffer would use a slot and could not be taken back.
	out     chan *message.Message
	sending sync.RWMutex  // read-locked by workers that send to out
	closed  chan struct{} // closed by Close
}

// New returns a handler. convert returns a new message, as first published, that shares no bytes with the record. The handler's
// context has the values of the message's. An error, a panic or no message sends the record to the DLQ, undecodable.
func New[R any](convert func(*driver.Message[R]) (*message.Message, error)) *Handler[R] {
	return &Handler[R]{convert: convert, out: make(chan *message.Message), closed: make(chan struct{})}
}

// Messages returns the channel of a Watermill subscriber. Close closes it.
func (h *Handler[R]) Messages() <-chan *message.Message { return h.out }

// Close implements [engine.Handler].
func (h *Handler[R]) Close() {
	close(h.closed)
	h.sending.Lock() // a worker that comes later finds that its lane has ended
	defer h.sending.Unlock()
	close(h.out)
}

// Handle implements [engine.Handler].
func (h *Handler[R]) Handle(d *engine.Delivery, m *driver.Message[R]) {
	msg, err := h.Message(m)
	if err != nil {
		d.Fail(&redeliver.UndecodableError{Err: err})
		return
	}
	d.SetForm(&Message{msg, msg})
	msg.SetContext(d.WithValues(msg.Context()))
	if !h.send(d, msg) {
		d.Withdraw()
		return
	}
	select {
	case <-msg.Acked():
		d.Ack()
	case <-msg.Nacked():
		d.Nack()
	case <-h.closed:
		d.Abandon()
	}
}

// Message makes the message of a record. A panic and a nil message are errors: the marshaler may be the user's own.
func (h *Handler[R]) Message(m *driver.Message[R]) (msg *message.Message, err error) {
	defer func() {
		if v := recover(); v != nil {
			msg, err = nil, &redeliver.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	msg, err = h.convert(m)
	if err == nil && msg == nil {
		err = errors.New("the marshaler returned no message")
	}
	return msg, err
}

// send sends a message to the Router. It returns false if the lane ends first.
func (h *Handler[R]) send(d *engine.Delivery, msg *message.Message) bool {
	h.sending.RLock()
	defer h.sending.RUnlock()
	select {
	case <-d.Draining(): // out may be closed
		return false
	default:
	}
	select {
	case h.out <- msg:
		return true
	case <-d.Draining():
		return false
	case <-d.Session().Done():
		return false
	}
}

// Message is a message that a [Handler] has delivered, in the form that its handler gets. It implements [engine.Form].
type Message struct {
	*message.Message
	delivered *message.Message // the same, unless a middleware has passed on another one
}

// Run runs one attempt with the handler h, as [engine.Delivery.Run] does, in the Router's goroutine. msg is the message that the
// Router's middlewares have passed on. d must have a Message, and no attempt must have begun. The produced messages are nil unless
// the handler has succeeded. After a failure Run acks the message at once: the engine carries out the decision.
func Run(d *engine.Delivery, h message.HandlerFunc, msg *message.Message) (produced []*message.Message, err error) {
	m, ok := d.Form().(*Message)
	if !ok {
		return h(msg)
	}
	if m.Message != msg {
		m.Message = msg
	}
	outer := msg.Context()
	succeeded := false
	defer func() {
		if !succeeded {
			produced = nil // the Router must not publish messages of a failed handler
			if err == nil {
				m.delivered.Ack()
			}
		}
	}()
	succeeded, err = d.Run(outer, func(ctx context.Context) error {
		if ctx != outer {
			msg.SetContext(ctx)
		}
		made, failure := h(msg)
		if failure == nil { // the Router must not publish messages of a failed handler, even if it acked its message itself
			produced = made
		}
		return failure
	})
	if d.Sub().Tracer != nil {
		msg.SetContext(outer)
	}
	return produced, err
}

// Describe implements [engine.Form].
func (m *Message) Describe() (redeliver.Headers, []byte) { return m.Metadata, m.Payload }

// Answered implements [engine.Form].
func (m *Message) Answered() bool { return isClosed(m.Acked()) || isClosed(m.Nacked()) }

// Declined implements [engine.Form].
func (m *Message) Declined() bool { return isClosed(m.Nacked()) }

// Settled implements [engine.Form]. The ack ends the wait of the worker.
func (m *Message) Settled() { m.delivered.Ack() }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

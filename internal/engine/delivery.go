package engine

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/contextkey"
)

// anyEntry is the interface through which a Delivery uses its generic entry.
type anyEntry interface {
	record() any
	key() []byte
	body() []byte
	headers() redeliver.Headers
	// size is the message's Size.
	size() int
	// age is Codec.Age.
	age() (state *redeliver.State, created, expires time.Time)
	readState(*redeliver.State)
	truncates() bool
	// orderKey identifies the message's key among those of all lanes; 0 for none.
	orderKey() uint64
	// join puts the message into a queue for batches.
	join(q *Batches, m *Batched)
	// isFirst reports whether the message came without a state, so that this is its first delivery.
	isFirst() bool
	write(ctx context.Context, to driver.Place, st *redeliver.State, done driver.Done)
	// end reports how the message ended here, once. With Stays it waits in its source until State.Due.
	end(how Ending)
	// handlerEnded is called when no handler of the message runs any more, before the message is written to its next place: a
	// suspect does not wait for the write.
	handlerEnded()
	// runAgain runs the message once more, at once, with the slot that it has.
	runAgain(st *redeliver.State)
	// isLost reports whether others may have the message by now.
	isLost() bool
	// draining is closed when the lane begins no more messages, and isDraining reports whether it is.
	draining() <-chan struct{}
	isDraining() bool
	// session is the context of the lane.
	session() context.Context
}

// Delivery is one attempt at one message, and the context that its handler sees. [FromContext] finds it. A message that runs
// again in this process gets another Delivery.
type Delivery struct {
	LazyContext

	sub     *Subscription
	entry   anyEntry
	form    Form                  // nil with a handler of records
	batched *Batched              // as it waits for a batch, or is in one; nil before
	failure atomic.Pointer[error] // of the attempt; nil for none. See keepFailure

	// state is the message's state in this process; nil if only the record has it.
	state *redeliver.State
	// claimed is set once, by what decides the message's end: its handler's answer, its timeout, or its ack.
	claimed atomic.Bool

	// The lock of sub.watch guards these fields.
	began      time.Duration // when the attempt began, counted from epoch, or waitsForBatch
	ends       time.Duration // when its time is over, counted from epoch; 0 for never
	prev, next *Delivery     // in the watch's list
	late       *lateHandler  // not nil: the attempt was settled without its handler's answer
	timedOut   bool          // its time is over, and its handler may still answer
	answered   bool          // its handler has answered

	span        atomic.Pointer[handlerSpan] // of the attempt; nil without a tracer
	sharedBatch atomic.Uint64               // a hash of the batch with whose answer or timeout the message ends; 0 for none
	signal      signal                      // evidence about the dependencies of the handler
	probe       bool                        // a guard's probe
	runs        bool                        // a handler may still run. Set by serve, cleared by the claimer if none does
	begun       bool                        // Run was called, or it is to be handled in a batch
	alone       bool                        // nothing else of the process runs meanwhile
	single      bool                        // it must be the only message of its batch
	// acked is set before the answer that the handler succeeded is delivered, for messages of batches.
	acked atomic.Bool
	// answerIgnored is set before the handler's answer is delivered, if it must not count. See endUnsettled.
	answerIgnored bool
	// noHandler is set before the answer is delivered, see SkipHandler. It is atomic because a middleware may have acked the message.
	noHandler atomic.Bool
	// holdsKey is set before the handler's answer is delivered, if later messages of its key must not run before it has ended.
	holdsKey bool
	// displaced is set for a message that has lost its place in the origin: it waits as in other orders although its
	// subscription is OrderBlocking.
	displaced bool
}

// Form is a message in the form that its handler gets, if that is not the broker's own record.
type Form interface {
	// Describe returns the message for Policy.Invalid and for tracers, or nil and nil if it cannot be read.
	Describe() (headers redeliver.Headers, body []byte)
	// Answered reports whether the handler has acked or nacked the message. Then its return value does not count.
	Answered() bool
	// Declined reports whether the handler has nacked the message.
	Declined() bool
	// Settled is called when the message was settled after its timeout. Its handler may still run.
	Settled()
}

type deliveryKey struct{}

// Declined reports whether the handler has nacked or rejected its message, with methods that some messages have.
func (d *Delivery) Declined() bool {
	if d.form != nil && d.form.Declined() {
		return true
	}
	r, ok := d.entry.record().(interface{ Declined() bool })
	return ok && r.Declined()
}

// SkipHandler records that the message is acked without its handler, so that its end says nothing about what the handler depends on:
// a duplicate that is acked must not end an outage.
func (d *Delivery) SkipHandler() { d.noHandler.Store(true) }

// FromContext returns the delivery that ctx belongs to, or nil.
func FromContext(ctx context.Context) *Delivery {
	d, _ := ctx.Value(deliveryKey{}).(*Delivery)
	return d
}

// Value implements [context.Context].
func (d *Delivery) Value(key any) any {
	switch key.(type) {
	case deliveryKey, contextkey.State:
		return d
	default:
		return d.LazyContext.Value(key)
	}
}

// valuedContext is a Delivery that also has the values of another context.
type valuedContext struct {
	*Delivery
	values context.Context
}

// WithValues returns d with the values of ctx, the context that the message has in the form of its handler.
func (d *Delivery) WithValues(ctx context.Context) context.Context {
	if ctx == context.Background() {
		return d
	}
	return valuedContext{d, context.WithoutCancel(ctx)}
}

// Value implements [context.Context].
func (c valuedContext) Value(key any) any {
	switch key.(type) {
	case deliveryKey, contextkey.State:
		return c.Delivery
	}
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Delivery.Value(key)
}

// Sub returns the subscription that delivered the message.
func (d *Delivery) Sub() *Subscription { return d.sub }

// Record returns the adapter's own record.
func (d *Delivery) Record() any { return d.entry.record() }

// Key returns the message's key as it was published, or nil if it has none.
func (d *Delivery) Key() []byte { return d.entry.key() }

// Body returns the message's body as it was published.
func (d *Delivery) Body() []byte { return d.entry.body() }

// Headers returns the message's own headers, as they were published.
func (d *Delivery) Headers() redeliver.Headers { return d.entry.headers() }

// State returns the message's state before the current attempt.
func (d *Delivery) State() (st redeliver.State) {
	d.readState(&st)
	return st
}

// readState sets st, which must be zero, to State.
func (d *Delivery) readState(st *redeliver.State) {
	if d.state != nil {
		*st = *d.state
		return
	}
	d.entry.readState(st)
}

// Form returns the form of the message; nil with a handler of records. SetForm sets it, before the message is delivered.
func (d *Delivery) Form() Form     { return d.form }
func (d *Delivery) SetForm(f Form) { d.form = f }

// Begun reports whether Run was called.
func (d *Delivery) Begun() bool { return d.begun }

// SetBatched makes the message one that waits for a batch. Its clock must be stopped.
func (d *Delivery) SetBatched(m *Batched) { d.batched = m }

// Draining returns a channel that is closed when no more messages of the source may be delivered.
func (d *Delivery) Draining() <-chan struct{} { return d.entry.draining() }

// Lost reports whether this process can no longer settle the message, which then comes back.
func (d *Delivery) Lost() bool { return d.entry.isLost() }

// Session returns the context of the partition or queue that the message was read from. Many messages share it.
func (d *Delivery) Session() context.Context { return d.entry.session() }

// claim reports whether the caller is the first to claim the message's end. If so, the caller must settle the message.
func (d *Delivery) claim() bool { return !d.claimed.Swap(true) }

// isFirst reports whether the message came without a state and had no attempt in this process.
func (d *Delivery) isFirst() bool {
	if d.state != nil {
		return false
	}
	return d.entry.isFirst()
}

// isProbe reports whether the message counts as a probe of Outage or DeadLetterRate.
func (d *Delivery) isProbe() bool { return d.alone || d.probe }

// Invalid returns why the message must not run: it is too old, or Policy.Invalid refuses it or panics.
func (d *Delivery) Invalid() error {
	if err := d.sub.checkExpired(d.state, d.entry); err != nil {
		return err
	}
	if d.sub.Policy.Invalid == nil {
		return nil
	}
	return d.askInvalid()
}

// askInvalid calls Policy.Invalid. It is not a part of Invalid, because a Router runs each message in a new goroutine,
// whose stack would grow for this large frame.
func (d *Delivery) askInvalid() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &redeliver.InvalidError{Err: &redeliver.PanicError{Value: v, Stack: debug.Stack()}}
		}
	}()
	headers, body := d.describe()
	if headers == nil && body == nil { // it cannot be read: its attempt reports that
		return nil
	}
	m := redeliver.Message{State: d.State(), Headers: headers, Body: body, Key: d.entry.key()}
	if err := d.sub.Policy.Invalid(m); err != nil {
		return &redeliver.InvalidError{Err: err}
	}
	return nil
}

// describe returns the message's headers and body for policies and tracers, or nil and nil if they cannot be read.
func (d *Delivery) describe() (redeliver.Headers, []byte) {
	if d.form != nil {
		return d.form.Describe()
	}
	return d.entry.headers(), d.entry.body()
}

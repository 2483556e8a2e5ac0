package engine

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
)

// ending is how a message's way through this process ended.
type ending uint8

const (
	acked     ending = iota // its handler succeeded
	forwarded               // it was written to where it waits or to the DLQ
	staying                 // it waits in its source, and runs again here
	abandoned               // it is not settled; it comes back
)

// carrier is what a Delivery needs of the generic entry that it belongs to.
type carrier interface {
	newMessage() (*message.Message, error)
	record() any
	key() []byte
	body() []byte
	headers() redeliver.Headers
	// age is Codec.Age.
	age() (brought *redeliver.State, born, expires time.Time)
	readState(*redeliver.State)
	truncates() bool
	// isFirst reports whether the message brought no state.
	isFirst() bool
	write(ctx context.Context, to driver.Place, st *redeliver.State, done driver.Done)
	// end reports how the message ended here, once.
	end(how ending)
	// stay is end for a message that waits in its source until st.Due.
	stay(st *redeliver.State)
	// rest reports that no handler of the message runs any more: what is only written somewhere holds up no suspect.
	rest()
	// runAgain has the message run once more, at once, with the slot that it has.
	runAgain(st *redeliver.State)
	// isLost reports whether others may have the message by now.
	isLost() bool
	// isDraining reports whether the lane ends.
	isDraining() bool
	// session is the context of the lane.
	session() context.Context
}

// Delivery is one attempt at one message: the context that its handler sees, and what is known of the message. [FromContext]
// finds it. A message that runs again in this process gets another Delivery.
type Delivery struct {
	Lazy

	sub  *Subscription
	c    carrier
	msg  *message.Message // that a Router has; nil with a handler of records
	task Task             // what runs the attempt; nil before that

	// state is what the message became in this process; nil while the record says it all.
	state *redeliver.State
	// claimed is set by whoever takes care of the message's end: its handler's answer, its timeout, or the worker that saw
	// it settled. The first one counts.
	claimed atomic.Bool

	w          *watch        // over the timeout; nil for none
	at         time.Duration // when the attempt began, counted from epoch, or waiting. Guarded by w's lock
	prev, next *Delivery     // in w's list, guarded by its lock
	over       *overrun      // the attempt was settled without its handler's answer. Guarded by w's lock
	warned     bool          // its time is over, and its handler may still answer. Guarded by w's lock
	answered   bool          // its handler has answered. Guarded by w's lock
	extension  *extension    // nil for none. Guarded by w's lock

	wrote   How                    // where the message was written to
	written *redeliver.State       // as what
	span    atomic.Pointer[traced] // of the attempt; nil without a tracer
	said    outcome                // what the end of the message says of what its handler depends on
	probe   bool                   // it was let through in an outage, see guard
	runs    bool                   // a handler may still have it. Only whoever claims the message changes that
	alone   bool                   // nothing else of the process runs
	// displaced is set for a message that has lost its place in the origin: it waits as in other orders although its
	// subscription is Blocking.
	displaced bool
}

type deliveryKey struct{}

// FromContext returns the delivery that ctx belongs to, or nil.
func FromContext(ctx context.Context) *Delivery {
	d, _ := ctx.Value(deliveryKey{}).(*Delivery)
	return d
}

// Value implements [context.Context].
func (d *Delivery) Value(key any) any {
	switch key.(type) {
	case deliveryKey, redeliver.ContextKey:
		return d
	default:
		return d.Lazy.Value(key)
	}
}

// valuedContext is a Delivery with the values that the message's own context has beside it.
type valuedContext struct {
	*Delivery
	values context.Context
}

// withValues is the context of a message whose own was ctx: it has ctx's values, and not its end.
func (d *Delivery) withValues(ctx context.Context) context.Context {
	if ctx == context.Background() {
		return d
	}
	return valuedContext{d, context.WithoutCancel(ctx)}
}

// Value implements [context.Context].
func (c valuedContext) Value(key any) any {
	switch key.(type) {
	case deliveryKey, redeliver.ContextKey:
		return c.Delivery
	}
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Delivery.Value(key)
}

// Sub is the subscription that delivered the message.
func (d *Delivery) Sub() *Subscription { return d.sub }

// Record is the adapter's own record.
func (d *Delivery) Record() any { return d.c.record() }

// Key is the message's key, nil for none, and Body its body, as they were published.
func (d *Delivery) Key() []byte  { return d.c.key() }
func (d *Delivery) Body() []byte { return d.c.body() }

// Headers are the message's own, as they were published.
func (d *Delivery) Headers() redeliver.Headers { return d.c.headers() }

// State is the message's state before the attempt that runs now.
func (d *Delivery) State() (st redeliver.State) {
	d.readState(&st)
	return st
}

// readState sets st, which is zero, to State.
func (d *Delivery) readState(st *redeliver.State) {
	if d.state != nil {
		*st = *d.state
		return
	}
	d.c.readState(st)
}

// Task is what runs the attempt, nil before Run.
func (d *Delivery) Task() Task { return d.task }

// Invalid returns why the message must not run: it is too old, or Policy.Invalid says so.
func (d *Delivery) Invalid() error { return d.check() }

// Lost reports whether the message is no longer this process's to settle: it comes back by itself.
func (d *Delivery) Lost() bool { return d.c.isLost() }

// Session is the context of the partition or queue that the message was read from. Many messages share it.
func (d *Delivery) Session() context.Context { return d.c.session() }

// claim reports whether the caller is the first to take care of the message's end.
func (d *Delivery) claim() bool { return !d.claimed.Swap(true) }

// isFirst reports whether the message came for the first time and had no attempt in this process.
func (d *Delivery) isFirst() bool {
	if d.state != nil {
		return false
	}
	return d.c.isFirst()
}

// isProbe reports whether the message was let through in an outage.
func (d *Delivery) isProbe() bool { return d.alone || d.probe }

// check returns why the message must not run: it is too old, or Policy.Invalid says so. A panic of that is an answer, too.
func (d *Delivery) check() (err error) {
	if err := d.sub.expired(d.state, d.c); err != nil {
		return err
	}
	if d.sub.Policy.Invalid == nil {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = &redeliver.InvalidError{Err: &redeliver.PanicError{Value: v, Stack: debug.Stack()}}
		}
	}()
	headers, body := d.describe()
	if headers == nil && body == nil { // it cannot be decoded, which its attempt is to say
		return nil
	}
	m := redeliver.Message{State: d.State(), Headers: headers, Body: body, Key: d.c.key()}
	if err := d.sub.Policy.Invalid(m); err != nil {
		return &redeliver.InvalidError{Err: err}
	}
	return nil
}

// describe is the message as policies and tracers see it.
func (d *Delivery) describe() (redeliver.Headers, []byte) {
	switch {
	case d.task != nil:
		return d.task.Describe()
	case d.msg != nil:
		return d.msg.Metadata, d.msg.Payload
	}
	return d.c.headers(), d.c.body()
}

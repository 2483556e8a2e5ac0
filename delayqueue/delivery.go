package delayqueue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// Record is a broker's own record behind a delivery. It does not change, so
// what is scheduled or dead-lettered is what the broker delivered, whatever the
// handler did to its message.
type Record interface {
	// Message returns a new Watermill message of the record, as the handler is
	// to see it. The caller sets its context. It may fail although it did not
	// before: a decoder may ask others.
	Message() (*message.Message, error)
}

// Named is a Record that knows the message's id, for a Delivery without one: an
// id that has to be composed costs an allocation, which a message that succeeds
// can do without.
type Named interface{ ID() string }

// Keyed is a Record that knows the message's key, as Policy.Invalid is to see it: nil
// for none.
type Keyed interface{ MessageKey() []byte }

// Mover is told, from any goroutine, that a Forward of a message is over: it was
// written to where it goes and is settled, or it was abandoned. The answer of
// its handler may still be on its way up through other middlewares.
type Mover interface{ Moved(forwarded bool) }

// Delivery is one delivered message: its subscription, its state and its
// record. It is the context of the message that the handler gets, or an
// ancestor of it: [FromContext] finds it.
type Delivery struct {
	Lazy
	// Sub is the subscription that delivered the message.
	Sub *Subscription
	// Record is the broker's own record.
	Record Record
	// ID and Source stand in State; they are kept apart because a first
	// delivery has nothing else. Where ID is empty, the Record is [Named].
	ID     string
	Source redeliver.Source
	// Expires is the end that a message names that did not wait before, see
	// redeliver.State.
	Expires time.Time
	// Waited is the state that the message brought from a topic that redeliver
	// writes; nil for a first delivery.
	Waited *redeliver.State
	// Mover, where there is one, is told when a Forward of the message is over.
	Mover Mover

	ran    atomic.Pointer[Attempt]         // that failed last; nil where no handler has
	first  *Delivery                       // what this one follows, see After; nil for itself
	latest atomic.Pointer[redeliver.State] // of the last After
	span   atomic.Pointer[traced]          // of the last attempt; nil without a tracer
	mu     sync.Mutex
	over   chan struct{} // closed when it is not forwarded any more; made by who waits for that
	// What is small stands together: there are as many deliveries as messages.
	forwarded  atomic.Bool
	forwarding bool        // while it is forwarded
	said       outcome     // stands when it is forwarded
	probe      atomic.Bool // as Seat's, where it has none

	// Alone is set for a suspect, beside which nothing else is delivered until it
	// is settled.
	Alone bool
	// Displaced is set for a message that has lost its place in the origin: it waits as
	// in other orders although Sub is Blocking.
	Displaced bool
}

// Ran is the context of the attempt that failed and is being decided about: a Router says
// there which handler it was. It is nil where none was. It is for a DeadLetters, while
// that writes.
func (d *Delivery) Ran() context.Context {
	if ran := d.ran.Load(); ran != nil {
		return ran
	}
	return nil
}

type deliveryKey struct{}

// FromContext returns the delivery that ctx belongs to, or nil.
func FromContext(ctx context.Context) *Delivery {
	d, _ := ctx.Value(deliveryKey{}).(*Delivery)
	return d
}

// Begin makes the delivery a context below parent. The end of parent means that
// the message was lost to this process: its session or the process has ended.
func (d *Delivery) Begin(parent context.Context) { d.Init(parent, time.Time{}) }

// Value implements [context.Context].
func (d *Delivery) Value(key any) any {
	switch key.(type) {
	case deliveryKey:
		return d
	case redeliver.ContextKey:
		return d
	default:
		return d.Lazy.Value(key)
	}
}

// After is the same delivery after one more attempt in this process.
func (d *Delivery) After(st redeliver.State) *Delivery {
	next := &Delivery{Sub: d.Sub, Record: d.Record, ID: d.ID, Source: d.Source, Alone: d.Alone, Displaced: d.Displaced, Waited: &st, first: d.root()}
	d.root().latest.Store(&st)
	next.Begin(d.parent)
	return next
}

// Under puts the delivery into ctx, in place of the one that it follows.
func (d *Delivery) Under(ctx context.Context) context.Context { return follower{ctx, d} }

// follower is a context that answers with a later delivery.
type follower struct {
	context.Context
	d *Delivery
}

func (f follower) Value(key any) any {
	switch key.(type) {
	case deliveryKey, redeliver.ContextKey:
		return f.d
	default:
		return f.Context.Value(key)
	}
}

// State is the message's state before the attempt that runs now.
func (d *Delivery) State() (st redeliver.State) {
	d.readState(&st)
	return st
}

// readState sets st, which must be the zero State. Its copies would be a tenth of
// BenchmarkRetrySuccess in package middleware.
func (d *Delivery) readState(st *redeliver.State) {
	if latest := d.latest.Load(); latest != nil {
		*st = *latest
		return
	}
	if d.Waited != nil {
		*st = *d.Waited
		return
	}
	st.ID, st.Group, st.Origin, st.Source, st.Expires = d.id(), d.Sub.Group, d.Sub.Origin, d.Source, d.Expires
}

func (d *Delivery) id() string {
	if n, ok := d.Record.(Named); ok && d.ID == "" {
		return n.ID()
	}
	return d.ID
}

// Same tells whether both are deliveries of one message: one may follow the other, see
// After.
func (d *Delivery) Same(other *Delivery) bool { return other != nil && d.root() == other.root() }

// permit says whether the message was let through in an outage.
func (d *Delivery) permit() *atomic.Bool {
	root := d.root()
	if e, ok := root.Mover.(interface{ seat() *Seat }); ok {
		return &e.seat().probe
	}
	return &root.probe
}

func (d *Delivery) isProbe() bool { return d.permit().Load() }

func (d *Delivery) root() *Delivery {
	if d.first != nil {
		return d.first
	}
	return d
}

// claim waits until nobody forwards the message. It is false when somebody has;
// otherwise the caller may, and must release it.
func (d *Delivery) claim() bool {
	for {
		d.mu.Lock()
		if !d.forwarding {
			d.forwarding = !d.forwarded.Load()
			claimed := d.forwarding
			d.mu.Unlock()
			return claimed
		}
		if d.over == nil {
			d.over = make(chan struct{})
		}
		over := d.over
		d.mu.Unlock()
		<-over
	}
}

func (d *Delivery) release() {
	d.mu.Lock()
	d.forwarding = false
	if d.over != nil {
		close(d.over)
		d.over = nil
	}
	d.mu.Unlock()
	if d.Mover != nil {
		d.Mover.Moved(d.forwarded.Load())
	}
}

// Moving tells whether a Forward of the message has begun, so that the Mover is
// told of its end, or was.
func (d *Delivery) Moving() bool {
	r := d.root()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forwarding || r.forwarded.Load()
}

// Forwarded tells whether the message was written to where it waits or to the
// DLQ: an ack of it is then no commit.
func (d *Delivery) Forwarded() bool { return d.root().forwarded.Load() }

// Lost tells whether the message is no longer this process's to settle: its
// session or the process has ended, and it comes back by itself.
func (d *Delivery) Lost() bool { return d.parent.Err() != nil }

// Session is the context that the delivery began below. Many share it.
func (d *Delivery) Session() context.Context { return d.parent }

// lost is closed when Lost becomes true.
func (d *Delivery) lost() <-chan struct{} { return d.parent.Done() }

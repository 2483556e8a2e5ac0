package engine

import (
	"context"
	"errors"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// Options are the parts that an adapter gives an engine. Sub, Codec, Store and one of Handle, Handler and Batch are required.
type Options[R any] struct {
	Sub   *Subscription
	Codec driver.Codec[R]
	Store driver.Store[R]
	// Handle is a handler of the broker's own records. Many goroutines call it at once.
	Handle func(ctx context.Context, record R) error
	// Handler is a handler of messages in another form. Engine.Close closes it.
	Handler Handler[R]
	// Batch is a handler of many records. BatchConfig says when it runs; it has its defaults and was checked.
	Batch       BatchFunc[R]
	BatchConfig redeliver.BatchConfig
}

// Handler handles messages in a form of its own. Package binding has the one for Watermill messages.
type Handler[R any] interface {
	// Handle makes one attempt at a message, in a goroutine of a worker. It calls Run of d, or lets another goroutine do it that it
	// has delivered the message to. At the end it calls one of d's Ack, Nack, Fail, Withdraw and Abandon.
	Handle(d *Delivery, m *driver.Message[R])
	// Close is called when all lanes have ended. A Handle that still runs must end.
	Close()
}

// records is the [Handler] of the broker's own records. The return value of the function is the answer.
type records[R any] func(ctx context.Context, record R) error

// Handle implements [Handler].
func (h records[R]) Handle(d *Delivery, m *driver.Message[R]) {
	defer d.Ack()
	_, _ = d.Run(d, func(ctx context.Context) error { return h(ctx, m.Record) }) // Ack needs neither
}

// Close implements [Handler]. Functions that still run are not waited for.
func (h records[R]) Close() {}

// BatchFunc handles a batch of records.
type BatchFunc[R any] func(b *Batch, all []*BatchMember[R]) error

// Engine runs the messages of one subscription: any number of lanes share its handlers and slots. It is safe for concurrent
// use; make it with [New].
type Engine[R any] struct {
	opt  Options[R]
	sub  *Subscription
	pool *Workers[*entry[R]]

	batches *Batches
}

// New makes an engine.
func New[R any](opt Options[R]) *Engine[R] {
	e := &Engine[R]{opt: opt, sub: opt.Sub}
	if opt.Handle != nil {
		e.opt.Handler = records[R](opt.Handle)
	}
	e.sub.Start()
	e.pool = NewWorkers((*entry[R]).serve)
	if opt.Batch != nil {
		e.sub.gathers.Store(true)
		e.batches = NewBatches(opt.BatchConfig, opt.Sub, e.callBatch)
	}
	return e
}

// Close ends the engine and closes its Handler. All lanes must have ended. It does not wait for handlers that still run.
func (e *Engine[R]) Close() {
	e.pool.Close()
	if e.sub.detachOperations != nil {
		e.sub.detachOperations()
	}
	if e.opt.Handler != nil { // otherwise there is a batch function
		e.opt.Handler.Close()
	}
}

// LaneOptions say how one source is run.
type LaneOptions[R any] struct {
	// MaxAhead bounds the messages that run or are ready. Default 256.
	MaxAhead int
	// MaxWaiting bounds the messages that wait until they are due, or behind another message of their key. Default 4,096.
	MaxWaiting int
	// MaxBytes bounds the sizes of all messages in hand. Default: no bound.
	MaxBytes int
	// DrainTimeout bounds how long the lane waits at its end for the messages in flight.
	DrainTimeout time.Duration
	// MoveTimeout is the bound instead, if it is longer, until Hurry is closed. It is for sources that move to another
	// process, which waits meanwhile, so that each move lets long attempts end. Default: none.
	MoveTimeout time.Duration
	// Hurry is closed when the process ends, or may have lost the source. A lane that drains then has DrainTimeout left.
	Hurry <-chan struct{}
	// Exclusive reports whether the source yields one message at a time and has taken the Turn for it. Such a message needs
	// no slot.
	Exclusive bool
	// Gaters decide which messages may begin.
	Gaters []Gater[R]
}

// Gater is a rule about which messages may begin, in addition to slots and keys. The lane's goroutine calls it, for
// messages of every [driver.Step].
type Gater[R any] interface {
	// Begin decides whether m may begin now, and counts it if so. Before it answers Begins it may change m's Step, State, Place
	// and Err. It may also set m.Alone, after it has made sure that nothing else runs. After NotYet and NothingYet the gater
	// must call Lane.Post when the answer may have changed.
	Begin(m *driver.Message[R]) Admission
	// HandlerEnded is called for a message that runs Alone when its handler has ended. End follows when the message has been
	// written to its next place.
	HandlerEnded(m *driver.Message[R])
	// End is called once for each Begin that answered Begins, when the message has ended in this lane, waits in place, or
	// could not begin. how says which.
	End(m *driver.Message[R], how Ending)
}

// LateGater is a [Gater] that is also called for the messages that outlive their lane.
type LateGater[R any] interface {
	// EndLate is called instead of End if the lane has already ended. Any goroutine calls it.
	EndLate(m *driver.Message[R])
}

// Admission is a gater's decision about a message.
type Admission uint8

// The decisions of a gater.
const (
	Begins     Admission = iota // it may begin
	NotYet                      // this message must wait; others may begin
	NothingYet                  // no message may begin
	Later                       // this message waits until its Until, which the gater has set
	Outdated                    // this message is settled without an attempt: another copy counts
)

// Ending says how a message that a gater let begin has ended.
type Ending struct {
	Kind EndingKind
	// State is the state that was written, or with which the message waits. It is set with Moved, DeadLettered and Stays. With
	// Unsettled it is nil if the state has not changed.
	State *redeliver.State
	// Single says that the message must then be the only one of its batch. It is set only with Unsettled.
	Single bool
}

// EndingKind is the kind of an [Ending].
type EndingKind uint8

// The endings.
const (
	Acked        EndingKind = iota // its handler succeeded
	Moved                          // a copy waits elsewhere, or was published to its topic
	DeadLettered                   // it is in the DLQ
	Stays                          // it waits in place, and the gater is asked again
	Abandoned                      // it is not settled, and comes back
	Unsettled                      // its answer does not count, or it is to run again at once: the gater is asked again
	NotBegun                       // another gater, or a suspect, kept it from beginning
)

var (
	// ErrLost is the cause of the end of a message's context when other processes may have the message.
	ErrLost = errors.New("the message was lost to this process; it comes back")
	// ErrDrained is the cause of the end of a handler's context when its subscriber closed, or its source moves to another
	// process, and the time to drain is over.
	ErrDrained = errors.New("the subscriber closed or its partition moves, and the time to drain is over; the message comes back")
)

// RunLane runs the messages of a source until ctx ends or the source closes or is lost. Then it waits for the messages in flight,
// at most for the drain timeout, and returns. If start is not nil, RunLane calls it with the lane before it reads anything. The
// handlers' contexts derive from values.
func (e *Engine[R]) RunLane(ctx, values context.Context, src driver.Source[R], opt LaneOptions[R], start func(driver.Lane[R])) {
	if opt.MaxAhead == 0 {
		opt.MaxAhead = 256
	}
	if opt.MaxWaiting == 0 {
		opt.MaxWaiting = 4096
	}
	l := newLane(values, e, src, opt)
	if start != nil {
		start(l)
	}
	l.run(ctx)
}

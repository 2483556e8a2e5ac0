// Package driver is the seam between the engine and a broker: what an adapter implements.
//
// The engine (package internal/engine) owns the loop: it reads messages, holds those that are not due, keeps the order of
// keys, bounds what runs, runs handlers, decides about failures and waits for what is under way when a subscription ends.
// An adapter says what arrived, what it means, how to settle it and how to write one. It has three parts:
//
//   - a [Source] for each partition or queue that it reads,
//   - a [Codec] that knows the parts of a record,
//   - a [Store] that writes a message to where it goes next.
//
// # One message's way
//
//	Source.Messages -> Source.Parse -> (held until Message.Until) -> handler
//	  success: Source.Settle
//	  failure: Store.Write to a level or the DLQ, confirmed by Done -> Source.Settle
//	  lost or never begun: Source.Return
//
// The engine settles a message only after the broker has confirmed the write of its copy, so a process may die at any arrow:
// the message is on its source, or on its next place, or for a moment on both.
package driver

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// Step is what happens to a message when its time has come.
type Step uint8

// The steps.
const (
	Handle  Step = iota // its handler runs
	Hop                 // it is not due: a copy waits on another level
	Publish             // it is a delayed publish: it goes to its topic
	Isolate             // it may have crashed its process: it goes to where such messages run alone
	Bury                // it goes to the DLQ, because of Message.Err
)

// Place is where a Store writes a message.
type Place uint8

// The places.
const (
	Level    Place = iota // where it waits until State.Due
	Topic                 // its topic, as a new message
	Suspects              // where messages that may have crashed their process run one at a time
	DLQ                   // the dead-letter queue
)

// Message is one record on its way through this process. The source fills it in Parse. The engine keeps it until it calls
// Settle or Return, and its address does not change until then.
type Message[R any] struct {
	Record R
	// Key orders messages: those of one key run one after another, in the order in which they were read. 0 means no
	// order. A source that keeps first deliveries and retries apart gives them different keys.
	Key uint64
	// Until is the time before which nothing happens to the message. Zero, or a past time, means now.
	Until time.Time
	// Step is what happens then.
	Step Step
	// Retry says that the message counts as a retry, whose slots are separate from those of first deliveries.
	Retry bool
	// Returned says that the message brought a state: it failed before, or was replayed. A retry always did.
	Returned bool
	// Alone says that nothing else of this process runs meanwhile, which the source has made sure of.
	Alone bool
	// InPlace says that the message waits at the head of its key: nothing behind it begins until it is settled.
	InPlace bool
	// Displaced says that the message has lost its place in the origin: it waits as in other orders although its
	// subscription is Blocking.
	Displaced bool
	// State is what the message became in this process; nil while its record says it all. A source that sees the message
	// again after Return may keep it in memory.
	State *redeliver.State
	// Place names where the message was read from, for the event of a Hop.
	Place string
	// Err is why the message goes to the DLQ, with Bury.
	Err error
	// Size is what the message takes of LaneOptions.MaxBytes.
	Size int
	// Seq is the source's own: a slot in its tracker, a delivery tag.
	Seq uint64
	// Owner is the engine's own.
	Owner any
}

// ErrSettled is returned by Parse for a record that was settled before: the engine passes over it, without a Settle.
var ErrSettled = errors.New("the record was settled before")

// Source is one partition or queue. The lane's goroutine calls all methods, one at a time; none may block for long.
type Source[R any] interface {
	// Messages are the records in the order in which they were read. The source closes the channel when no more will
	// come: the lane then finishes what it has begun, returns the rest and ends.
	Messages() <-chan R
	// Lost is closed when this process may settle nothing more of the source: its session or channel has ended. Nil
	// where the broker itself refuses that.
	Lost() <-chan struct{}
	// Parse fills m, whose Record is set. An error other than ErrSettled is a record that has no meaning: the source
	// has reported it, and the engine passes over it.
	Parse(m *Message[R]) error
	// Accept says how many more messages the lane would take now, beside those that it has taken with Parse. The source
	// reads no more while that is 0. It is called again whenever the number or what was taken has changed.
	Accept(n int)
	// Stop is called when the lane ends: the source reads nothing more. The channel is closed when nothing more will come
	// from Messages, which the lane goes on reading until then. Nil: nothing more will come.
	Stop() <-chan struct{}
	// Settle acks a message that is done or that waits elsewhere. It may be batched until Commit.
	Settle(m *Message[R])
	// Return gives a message back that this process will not settle: it was never begun, or it was abandoned. It is to
	// come again after wait, where the broker can do that. runs reports whether a handler of this process may still run.
	Return(m *Message[R], wait time.Duration, runs bool)
	// Commit is called after one or several calls of Settle.
	Commit()
	// Flush is the end: it passes on what was settled and returned, within ctx.
	Flush(ctx context.Context)
}

// Codec knows the parts of a record. Any goroutine calls it, but not two for one message at a time.
type Codec[R any] interface {
	// Message returns a new Watermill message, as it was first published. Its handler finds the values of its context.
	// An error sends the record to the DLQ, undecodable.
	Message(m *Message[R]) (*message.Message, error)
	// Key is the message's key, nil for none, and Body its body, as they were published.
	Key(m *Message[R]) []byte
	Body(m *Message[R]) []byte
	// Headers are the message's own, without redeliver's.
	Headers(m *Message[R]) redeliver.Headers
	// Age is what decides whether the message is too old to run: the state that it brought, which must not be changed, or, for
	// a first delivery, nil, its time in its origin and the end that it names itself, zero where there is none. It is asked
	// before each attempt.
	Age(m *Message[R]) (brought *redeliver.State, born, expires time.Time)
	// State sets st, which is zero: what the message brought from where redeliver wrote it, or, for a first delivery, ID,
	// Group, Origin, Source and Expires.
	State(m *Message[R], st *redeliver.State)
}

// Done is told what became of a Write.
type Done interface {
	// Confirmed is called once for each Write, from any goroutine, also before Write returns: with nil only when the
	// broker has confirmed the message. where names the topic or queue, also with an error.
	Confirmed(where string, err error)
	// Unanswered may be called once, before Confirmed: ctx has ended, the broker has not answered, and the client cannot take
	// the message back. Confirmed comes when there is an answer.
	Unanswered(where string, err error)
}

// Store writes messages. Any goroutine calls it, many at a time.
type Store[R any] interface {
	// Write writes a copy of m, with st as its state, to a place, and calls done exactly once. It tries once; the engine
	// tries again after an error. A try ends when ctx does, unless the client cannot take it back: then done is called
	// when the client has answered, because a second copy must not be written meanwhile.
	//
	// Write keeps neither st nor m after it has called done. It may block while the client is busy.
	//
	// Errors: ErrRefused and ErrDoubtful say that the error concerns this message, or perhaps does;
	// redeliver.UnschedulableError that no place can hold its wait. ErrStay is no failure: the source keeps the message
	// where it is, hidden, and the engine runs it again when it is due. Every other error is an outage.
	Write(ctx context.Context, to Place, m *Message[R], st *redeliver.State, done Done)
}

// Truncating is a Store that can write a message to the DLQ without its body, or in parts, when the DLQ refuses it whole:
// it does so where State.Truncated is set.
type Truncating interface{ Truncates() bool }

// The errors of Write that are not outages.
var (
	// ErrRefused marks an error that concerns this one message, however often it is tried: it is too large, say. The
	// message goes to the DLQ, and if the DLQ refuses it, there without its body.
	ErrRefused = errors.New("the broker refuses this message")
	// ErrDoubtful marks an error of which the adapter does not know whether it concerns this one message or all. It
	// counts as ErrRefused once other messages were written to the same place between several tries of this one.
	ErrDoubtful = errors.New("the broker refuses this message, or all")
	// ErrStay says that the message waits in its source.
	ErrStay = errors.New("the message waits in its source")
)

// Lane is what the engine offers to a source. Its methods may be called from any goroutine.
type Lane[R any] interface {
	// Post has the lane's goroutine call f soon. It reports whether it will: not after the lane's end.
	Post(f func()) bool
	// Revise calls f for each message that waits until its time, in the order of Seq. f may change Until and Step. Only f
	// of Post may call it.
	Revise(f func(m *Message[R]))
	// Abandon takes a message out of the lane that others may have by now. Only f of Post may call it. A handler that
	// runs sees the end of its context, with the cause; nothing of the message is settled or returned.
	Abandon(m *Message[R], cause error)
	// ReturnUnrun calls Source.Return for all messages that have not begun and of which which, where it is not nil, reports
	// true. Only f of Post may call it, and the source in one of its methods.
	ReturnUnrun(which func(*Message[R]) bool)
}

// Package driver has the interfaces between redeliver's engine and an adapter for a broker.
//
// The engine owns the loop: it reads messages, holds those that are not due, keeps the order of keys and bounds what
// runs. It runs handlers, decides about failures and waits for the messages in flight when a subscription ends. An
// adapter reads, parses, settles and writes messages. It has three parts, for the broker's own record type R:
//
//   - a [Source] for each partition or queue that it reads,
//   - a [Codec] that returns the parts of a record,
//   - a [Store] that writes a message to its next place.
//
// Package adapters runs them, and examples/adapter is an example. docs/how-to/write-an-adapter.md explains it.
//
// Experimental: until version 1.0 a minor version may change this package. The changelog says so.
//
// # The life of a message
//
//	Source.Messages -> Source.Parse -> (held until Message.Until) -> handler
//	  success: Source.Settle
//	  failure: Store.Write to a level or the DLQ, confirmed by Done -> Source.Settle
//	  lost or never begun: Source.Return
//
// The engine settles a failed message only after the broker has confirmed its copy. So a process may die at any arrow:
// the message is on its source, on its next place, or on both, with the same id.
//
// # Fields that most adapters leave out
//
// Suspects, Isolate and Message.Alone are for adapters that count crashes; InPlace, Displaced and ErrStay for messages
// that wait in their source; Lost and Abandon for brokers that take messages back. An adapter without them leaves the
// fields zero and does not use the others.
package driver

import (
	"context"
	"errors"
	"time"

	"github.com/redeliver/redeliver"
)

// Step is what the engine does with a message at Until.
type Step uint8

// The steps.
const (
	StepHandle     Step = iota // its handler runs
	StepHop                    // it is written to a Level again: it is not due, or its present place is the wrong one
	StepPublish                // it is a delayed publish: it is written to its Topic
	StepIsolate                // it may have crashed its process: it is written to Suspects
	StepDeadLetter             // it is written to the DLQ, because of Message.Err
)

// Place is where a Store writes a message.
type Place uint8

// The places.
const (
	PlaceLevel    Place = iota // a level, where it waits until State.Due
	PlaceTopic                 // its origin, as a new message, without redeliver's headers
	PlaceSuspects              // the place of messages that may have crashed their process, which run one at a time
	PlaceDLQ                   // the dead-letter queue
)

// Message is one record on its way through this process. The engine makes it with Record set, and Source.Parse sets the
// other fields; all may stay zero for a new message that runs at once. The engine keeps it until it calls Settle or Return,
// and its address does not change until then.
type Message[R any] struct {
	// Record is the broker's own record, as Source.Messages returned it.
	Record R
	// Key orders messages: those of one key run one after another, in the order in which they were read. 0 means no
	// order. It is usually a hash. A source that keeps first deliveries and retries apart gives them different keys.
	Key uint64
	// Until is the time before which the engine does nothing with the message, by the clock of this host. Zero, or a
	// past time, means now.
	Until time.Time
	// Step is what the engine does at that time.
	Step Step
	// Retry reports whether the message counts as a retry: retries have their own slots, and a message that is no retry
	// counts as new.
	Retry bool
	// Returned reports whether a message that is no retry came with a state: it was replayed or postponed before its
	// first attempt.
	Returned bool
	// Alone reports whether the source lets nothing else of this process run at the same time.
	Alone bool
	// InPlace reports whether the message waits until Until at the head of its key: no message behind it begins until it
	// is settled.
	InPlace bool
	// Displaced reports, in a subscription with OrderBlocking, whether the message has lost its place in the origin: it
	// waits on a level, as in other orders.
	Displaced bool
	// State is the state with which the message came, as package delayqueue read it, or the state that the source kept
	// in memory after Return. While it is nil the engine calls Codec.State and Codec.Age.
	State *redeliver.State
	// Place names the topic or queue from which the message was read, for events.
	Place string
	// Err is the reason to send the message to the DLQ, with the step DeadLetter.
	Err error
	// Size is the message's size in bytes, with its key and its headers, for the bounds on the memory of a source's messages
	// and on a batch. A header takes more memory than its text: count some bytes for each. 0 means that it is not counted.
	Size int
	// Seq is the source's own: a slot in its tracker, a delivery tag. The engine does not change it.
	Seq uint64
	// Owner is the engine's own. Adapters must neither read nor change it.
	Owner any
}

// ErrSettled is the error of Parse for a record that was already settled. The engine ignores the record.
var ErrSettled = errors.New("the record was settled before")

// Source is one partition or queue. One goroutine calls all its methods, one at a time, so none may block for long: a source
// does its I/O in a goroutine of its own. Each message that Parse accepted ends with one call of Settle or Return, unless
// the source is lost or has abandoned it.
type Source[R any] interface {
	// Messages returns the records in the order in which they were read. The source closes the channel when no more
	// will come: the engine then waits for the messages in flight, returns the others and calls Flush. Messages is
	// called once.
	Messages() <-chan R
	// Lost returns a channel that is closed when this process may settle no more messages: the session, channel or
	// lease has ended. The engine then ends the handlers' contexts, and calls neither Settle nor Flush; a Return has no
	// effect. Lost returns nil if the broker refuses late settlements. It is called once.
	Lost() <-chan struct{}
	// Parse sets the fields of m, whose Record is set. The engine ignores a record for which it returns an error: the
	// source has reported and, if necessary, settled it. A record that cannot be read should not be ignored but go to the
	// DLQ, with the step DeadLetter.
	Parse(m *Message[R]) error
	// Accept sets how many messages the engine has room for, in addition to those that Parse has got. The source should
	// stop reading while that is 0; messages that it has read may still come. Accept is called again when the number
	// has changed or a message was parsed.
	Accept(n int)
	// Stop is called once, when the engine begins to end the source. The source reads no more. The engine continues to
	// receive from Messages and returns these messages. It does so until no message is in flight and the channel that
	// Stop returned is closed, at most for the drain timeout. With a nil channel it does not wait for the source.
	Stop() <-chan struct{}
	// Settle acks a message that has ended or whose copy is confirmed. The source may collect acks until Commit. If an ack
	// is lost, the message comes again.
	Settle(m *Message[R])
	// Return gives back a message that this process will not settle: it has not begun, or its handler was too slow. It
	// should come again after wait, if the broker can delay it. runs reports whether its handler may still run: then
	// the message should come as late as possible. The attempt did not count.
	Return(m *Message[R], wait time.Duration, runs bool)
	// Commit is called after one or several calls of Settle.
	Commit()
	// Flush is the last call. It completes what Settle and Return began, until all is done or ctx ends, after at most
	// 10 s.
	Flush(ctx context.Context)
}

// Starter is a [Source] that needs its [Lane].
type Starter[R any] interface {
	// Start is called once, before the engine reads Messages.
	Start(lane Lane[R])
}

// Codec returns the parts of a record. Any goroutine calls it, but not two for one message at a time. It must not change the
// record, and what it returns stays unchanged until the message is settled.
type Codec[R any] interface {
	// Key returns the message's key, or nil if it has none, and Body returns its body, as they were published.
	Key(m *Message[R]) []byte
	Body(m *Message[R]) []byte
	// Headers returns the message's own headers, without redeliver's.
	Headers(m *Message[R]) redeliver.Headers
	// Age returns the facts that decide whether the message is too old to run. For a first delivery state is nil, created
	// is the message's time in its origin, and expires is its own expiry; both are zero if unknown. Otherwise state is
	// the one that the message came with, which must not be changed. The engine calls it before each attempt.
	Age(m *Message[R]) (state *redeliver.State, created, expires time.Time)
	// State fills st, which is zero, with the state that the message came with, or, for a first delivery, with ID,
	// Group, Origin, Source and Expires. The ID belongs to this message alone and never changes: a copy has it in its state.
	State(m *Message[R], st *redeliver.State)
}

// Done receives the result of a Write.
type Done interface {
	// Confirmed is called once for each Write, from any goroutine, perhaps before Write returns. err is nil only when the
	// broker has confirmed the message. where names the topic or queue, also with an error.
	Confirmed(where string, err error)
	// Unanswered may be called once, before Confirmed: ctx has ended, the broker has not answered, and the client cannot
	// cancel the write. The engine stops the intake, except for a write to Topic. Confirmed follows the answer.
	Unanswered(where string, err error)
}

// Result receives the result of one Write that an adapter makes for itself. It implements Done. It must be made with a
// capacity of 1.
type Result chan error

// Confirmed implements [Done].
func (r Result) Confirmed(_ string, err error) { r <- err }

// Unanswered implements [Done].
func (Result) Unanswered(string, error) {}

// Store writes messages. Any goroutine calls it, many at a time.
type Store[R any] interface {
	// Write writes a copy of m, with st as its state, to a place, and calls done.Confirmed exactly once: with nil only
	// when the copy would survive a crash of the broker. The state is StateHeaders(st), after the message's own headers; key,
	// body and headers stay as they were published.
	//
	// It tries once, and the engine tries again after an error, with pauses from 50 ms to 15 s. A try ends when ctx does,
	// unless the client cannot cancel it: then done is called when the client has answered, because a second copy must not
	// be written meanwhile.
	//
	// Write keeps neither st nor m after it has called done. It may block while the client is busy, but should return before
	// the broker's answer: it may be called by the goroutine that calls the source.
	//
	// Errors: ErrRefused concerns this message; ErrDoubtful may concern it. redeliver.UnschedulableError means that no
	// place can hold its wait. ErrStay is not a failure: the source keeps the message, hidden, and the engine runs it
	// again when it is due. Every other error is an outage: nothing new begins until this write has succeeded, except for a
	// write to Topic, which may be full until messages have run.
	Write(ctx context.Context, to Place, m *Message[R], st *redeliver.State, done Done)
}

// Truncating is a Store that can write a message to the DLQ without its body, or in parts. It does so if
// State.Truncated is set, after the DLQ has refused the whole message.
type Truncating interface{ Truncates() bool }

// The errors of Write that are not outages.
var (
	// ErrRefused marks an error that concerns this one message and that no other try can fix, for example because of
	// its size. The message goes to the DLQ, and if the DLQ refuses it, without its body.
	ErrRefused = errors.New("the broker refuses this message")
	// ErrDoubtful marks an error that may concern this one message or all. It counts as ErrRefused when several tries of
	// this message fail while other messages are written to the same place.
	ErrDoubtful = errors.New("the broker refuses this message, or all")
	// ErrStay means that the message waits in its source.
	ErrStay = errors.New("the message waits in its source")
)

// Lane is the engine's part of one source. Any goroutine may call Post. See the other methods for their callers.
type Lane[R any] interface {
	// Post calls f in the goroutine that calls the source. f must not block. After the lane's end Post returns false
	// and does not call f.
	Post(f func()) bool
	// Revise calls f for each message that waits until it is due, in the order of Seq. f may change Until and Step.
	// Only the f of Post may call it.
	Revise(f func(m *Message[R]))
	// Abandon removes from the lane a message that others may have by now, without Settle or Return. It ends the
	// context of a running handler with the cause. Only the f of Post may call it.
	Abandon(m *Message[R], cause error)
	// ReturnUnrun calls Source.Return for the messages that have not begun and for which selected reports true; a nil
	// selected selects all. Only the f of Post or a method of the source may call it.
	ReturnUnrun(selected func(*Message[R]) bool)
}

// Package driver has the interfaces between the engine and a broker, which an adapter implements.
//
// The engine (package internal/engine) owns the loop: it reads messages, holds those that are not due, keeps the order of
// keys, bounds what runs, runs handlers, decides about failures and waits for the messages in flight when a subscription
// ends. An adapter reads, parses, settles and writes messages. It has three parts:
//
//   - a [Source] for each partition or queue that it reads,
//   - a [Codec] that returns the parts of a record,
//   - a [Store] that writes a message to its next place.
//
// # The life of a message
//
//	Source.Messages -> Source.Parse -> (held until Message.Until) -> handler
//	  success: Source.Settle
//	  failure: Store.Write to a level or the DLQ, confirmed by Done -> Source.Settle
//	  lost or never begun: Source.Return
//
// The engine settles a message only after the broker has confirmed the write of its copy, so a process may die at any arrow:
// the message is on its source, on its next place, or on both.
package driver

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// Step is what the engine does with a message that is due.
type Step uint8

// The steps.
const (
	Handle  Step = iota // its handler runs
	Hop                 // a copy of it waits on another level: it is not due, or it is rewritten
	Publish             // it is a delayed publish: it goes to its topic
	Isolate             // it may have crashed its process: it goes to the place of suspects
	Bury                // it goes to the DLQ, because of Message.Err
)

// Place is where a Store writes a message.
type Place uint8

// The places.
const (
	Level    Place = iota // a level, where it waits until State.Due
	Topic                 // its topic, as a new message
	Suspects              // the place of messages that may have crashed their process, which run one at a time
	DLQ                   // the dead-letter queue
)

// Message is one record on its way through this process. The source fills it in Parse. The engine keeps it until it calls
// Settle or Return, and its address does not change until then.
type Message[R any] struct {
	Record R
	// Key orders messages: those of one key run one after another, in the order in which they were read. 0 means no
	// order. A source that keeps first deliveries and retries apart gives them different keys.
	Key uint64
	// Until is the time before which the engine does nothing with the message. Zero, or a past time, means now.
	Until time.Time
	// Step is what the engine does at that time.
	Step Step
	// Retry reports whether the message counts as a retry, whose slots are separate from those of first deliveries.
	Retry bool
	// Returned reports whether the message came with a state: it failed before, or was replayed. It is set for every
	// retry.
	Returned bool
	// Alone reports whether the source lets nothing else of this process run at the same time.
	Alone bool
	// InPlace reports whether the message waits at the head of its key: no message behind it begins until it is
	// settled.
	InPlace bool
	// Displaced reports whether the message has lost its place in the origin: it waits as in other orders although its
	// subscription is Blocking.
	Displaced bool
	// State is the message's state in this process; nil while its record has it. A source that reads the message again after
	// Return may keep it in memory.
	State *redeliver.State
	// Place names where the message was read from, for the event of a Hop.
	Place string
	// Err is the reason to send the message to the DLQ, with Bury.
	Err error
	// Size is the message's size in bytes, which LaneOptions.MaxBytes bounds.
	Size int
	// Seq is for the source: a slot in its tracker, a delivery tag.
	Seq uint64
	// Owner is for the engine.
	Owner any
}

// ErrSettled is the error of Parse for a record that was already settled. The engine ignores the record.
var ErrSettled = errors.New("the record was settled before")

// Source is one partition or queue. The lane's goroutine calls all methods, one at a time; none may block for long.
type Source[R any] interface {
	// Messages returns the records in the order in which they were read. The source closes the channel when no more
	// records will come: the lane then finishes the messages that it has begun, returns the others and ends.
	Messages() <-chan R
	// Lost is closed when this process may not settle any more messages of the source: its session or channel has
	// ended. It is nil if the broker itself refuses late settlements.
	Lost() <-chan struct{}
	// Parse fills m, whose Record is set. The engine ignores a record for which it returns an error. The source has reported
	// the record, except with ErrSettled.
	Parse(m *Message[R]) error
	// Accept sets how many messages the lane has room for, in addition to those that it has parsed. The source should
	// stop reading while that is 0; messages that it has read may still come. It is called again whenever the number
	// has changed or a message was parsed.
	Accept(n int)
	// Stop is called when the lane ends: the source reads nothing more. The lane continues reading Messages until the channel is
	// closed and no message is in flight, at most for the drain timeout. With a nil channel it does not wait for the source.
	Stop() <-chan struct{}
	// Settle acks a message that has ended or whose copy waits elsewhere. The source may batch acks until Commit.
	Settle(m *Message[R])
	// Return returns a message that this process will not settle to the broker: it was never begun, or it was
	// abandoned. It should come again after wait, if the broker can delay it. runs reports whether a handler of this
	// process may still run.
	Return(m *Message[R], wait time.Duration, runs bool)
	// Commit is called after one or several calls of Settle.
	Commit()
	// Flush is the last call: it passes all acks and returns to the broker, before ctx ends.
	Flush(ctx context.Context)
}

// Codec returns the parts of a record. Any goroutine calls it, but not two for one message at a time.
type Codec[R any] interface {
	// Message returns a new Watermill message, as it was first published. Its handler's context has the values of its
	// context. An error sends the record to the DLQ, undecodable.
	Message(m *Message[R]) (*message.Message, error)
	// Key returns the message's key, or nil if it has none, and Body returns its body, as they were published.
	Key(m *Message[R]) []byte
	Body(m *Message[R]) []byte
	// Headers returns the message's own headers, without redeliver's.
	Headers(m *Message[R]) redeliver.Headers
	// Age returns what decides whether the message is too old to run: the state that it came with, which must not be
	// changed. For a first delivery that is nil, and Age returns the message's time in its origin and its own expiry,
	// or zero if there is none. The engine calls it before each attempt.
	Age(m *Message[R]) (brought *redeliver.State, born, expires time.Time)
	// State fills st, which is zero, with the state that the message came with, or, for a first delivery, with ID,
	// Group, Origin, Source and Expires.
	State(m *Message[R], st *redeliver.State)
}

// Done receives the result of a Write.
type Done interface {
	// Confirmed is called once for each Write, from any goroutine, perhaps before Write returns. err is nil only when the
	// broker has confirmed the message. where names the topic or queue, also with an error.
	Confirmed(where string, err error)
	// Unanswered may be called once, before Confirmed: ctx has ended, the broker has not answered, and the client cannot
	// cancel the write. Confirmed follows the answer.
	Unanswered(where string, err error)
}

// Result receives the result of one Write. It implements Done. It must be made with a capacity of 1.
type Result chan error

// Confirmed implements [Done].
func (r Result) Confirmed(_ string, err error) { r <- err }

// Unanswered implements [Done].
func (Result) Unanswered(string, error) {}

// Store writes messages. Any goroutine calls it, many at a time.
type Store[R any] interface {
	// Write writes a copy of m, with st as its state, to a place, and calls done.Confirmed exactly once. It tries once; the
	// engine tries again after an error. A try ends when ctx does, unless the client cannot cancel it: then done is called
	// when the client has answered, because a second copy must not be written meanwhile.
	//
	// Write keeps neither st nor m after it has called done. It may block while the client is busy.
	//
	// Errors: ErrRefused concerns this message; ErrDoubtful may concern it. redeliver.UnschedulableError means that no
	// place can hold its wait. ErrStay is not a failure: the source keeps the message, hidden, and the engine runs it
	// again when it is due. Every other error is an outage.
	Write(ctx context.Context, to Place, m *Message[R], st *redeliver.State, done Done)
}

// Truncating is a Store that can write a message to the DLQ without its body, or in parts. It does so if
// State.Truncated is set, after the DLQ has refused the whole message.
type Truncating interface{ Truncates() bool }

// The errors of Write that are not outages.
var (
	// ErrRefused marks an error that concerns this one message and that no other try can fix, for example because it is
	// too large. The message goes to the DLQ, and if the DLQ refuses it, it goes there without its body.
	ErrRefused = errors.New("the broker refuses this message")
	// ErrDoubtful marks an error that may concern this one message or all. It counts as ErrRefused when other messages were
	// written to the same place between several tries of this one.
	ErrDoubtful = errors.New("the broker refuses this message, or all")
	// ErrStay means that the message waits in its source.
	ErrStay = errors.New("the message waits in its source")
)

// Lane is the interface of the engine for a source. Its methods may be called from any goroutine.
type Lane[R any] interface {
	// Post makes the lane's goroutine call f. After the lane's end it returns false and does not call f.
	Post(f func()) bool
	// Revise calls f for each message that waits until it is due, in the order of Seq. f may change Until and Step. Only a
	// function of Post may call it.
	Revise(f func(m *Message[R]))
	// Abandon removes a message that others may have by now from the lane, without Settle or Return. It ends the
	// context of a running handler with the cause. Only a function of Post may call it.
	Abandon(m *Message[R], cause error)
	// ReturnUnrun calls Source.Return for the messages that have not begun and for which selected reports true; a nil
	// selected selects all. Only a function of Post or a method of the source may call it.
	ReturnUnrun(selected func(*Message[R]) bool)
}

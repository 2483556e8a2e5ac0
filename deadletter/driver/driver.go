// Package driver is what a broker implements so that package deadletter can work with its
// dead-letter queues. Programs do not import it; they use package deadletter.
//
// # The seam
//
// A [DLQ] is one dead-letter queue, of one origin and one group. It keeps messages, and beside
// them a small [State]: keys with values, of which the latest counts. A [Session] is one
// connection of one reader or one runner. Everything else is in package deadletter, once:
// who may write, tasks and their counts, marks, windows, canaries, resume and quarantine.
//
//	DLQ      Info Count Begin Load Append Held Close    what is asked without reading a message,
//	         Oldest Keeps Drops                         and how long messages stay
//	Session  Lock Open Write Remove Close               what a reader or a runner does
//	Reader   Next Close                                 the messages, the oldest first
//
// Brokers differ in three ways, and the seam does not hide it:
//
//   - Kafka and the broker in memory show a message without taking it. RabbitMQ and SQS hide
//     what is read until it is removed or the reader is closed. [Info].Look says which. Where
//     looking hides, package deadletter takes [LookLock] before it reads, so that one reads at
//     a time, and it opens one reader at a time.
//   - A lock of RabbitMQ and of the broker in memory belongs to a connection and ends with it.
//     On Kafka and SQS it is a lease in the state, see [Leases]: it ends some seconds after
//     its process has died.
//   - The state is a compacted topic on Kafka. On RabbitMQ and SQS it is one message, see
//     [Snapshot], which is read and replaced under a lock of the broker's.
//
// # One replay
//
// Run of 1,000 messages in windows of 500:
//
//	Begin, Lock(claim)             refused with a HeldError while another has it
//	Append(task: running)          the task is known before its first message
//	Lock(look), Open(Start)
//	500 x Next
//	Write(Back, 500)               each is confirmed
//	Remove(500, task)              records the task first: it counts the 500 and names them as
//	                               under way; then takes them out of the DLQ
//	500 x Next, Write, Remove      this record names the second window in place of the first
//	Next: io.EOF
//	Reader.Close
//	Append(task: done)             nothing is under way
//	Session.Close                  gives back what was in hand, and the locks
//
// Marks of messages that stay (quarantined, refused) are state: Append(mark/<position>).
//
// # One crash
//
// A runner may end between any two of these calls, or inside one:
//
//   - Before Write: the window lies in the DLQ, and the next runner sends it.
//   - After Write, before Remove has recorded the task: the window lies in the DLQ and on the
//     way back, too. The next runner sends it again: duplicates with the same id, at most a
//     window. It is counted once, because the first runner has not counted it.
//   - After the record, before all is removed: what is left of the window lies in the DLQ.
//     The next runner sees in the task that it is under way. It sends it again, which may be a
//     duplicate and is never a loss, and does not count it again. Messages that it does not find
//     were removed.
//     So the count is that of the messages, wherever the runner ended.
//   - After Remove: the next window.
//
// The session of a runner that died ends by itself: its connection, or its lease. Its unsettled messages are in
// the DLQ again by then. Nobody else writes before that.
package driver

import (
	"context"
	"time"
)

// DLQ is one dead-letter queue. It is safe for concurrent use.
//
// A driver does not retry for long: it returns the error of a broker that does not answer. A call
// may block until its context ends.
type DLQ interface {
	// Info describes the DLQ. It sends no request.
	Info() Info
	// Count returns how many messages are in the DLQ; exact is false if the broker only estimates
	// it. It reads none of them.
	Count(ctx context.Context) (n int64, exact bool, err error)
	// Oldest returns when the oldest unsettled message was written to the DLQ, by its writer's
	// clock. It reads no message. ok is false if there is none, or if the broker does not report
	// it.
	Oldest(ctx context.Context) (at time.Time, ok bool, err error)
	// Keeps returns how long the broker keeps a message, or 0 if it keeps messages of any age. The
	// error is [ErrNotTold] if the broker does not report it.
	Keeps(ctx context.Context) (time.Duration, error)
	// Drops returns another bound by which the broker may drop a message, such as "max-length=1000
	// by argument"; empty if there is none. The error is [ErrNotTold] if the broker does not report
	// it.
	Drops(ctx context.Context) (string, error)
	// Begin connects a reader or a runner. It takes no message yet.
	Begin(ctx context.Context) (Session, error)
	// Load returns the present state. It belongs to the caller.
	Load(ctx context.Context) (State, error)
	// Append writes entries to the state, in order, and returns when they are confirmed.
	// [State.Put] decides whether a lease entry counts. The error is [ErrFull] if the broker has no
	// room for them; then nothing is written.
	Append(ctx context.Context, entries ...Entry) error
	// Held returns who has a lock; ok is false if nobody has.
	Held(ctx context.Context, lock string) (h Holder, ok bool, err error)
	// Close closes the DLQ and its sessions, whose locks end as if their process had died.
	Close() error
}

// Locks. A driver whose Look is [FreeLook] is not asked for LookLock.
const (
	ClaimLock = "claim" // held by the runner that writes
	LookLock  = "look"  // held by the reader, where reading hides
)

// Session is a connection of one reader or one runner. It belongs to one goroutine. If one of its
// locks was lost, its methods return an error that is ErrLost.
type Session interface {
	// Lock takes a lock until the session is closed, or returns a [HeldError] at once.
	Lock(ctx context.Context, lock string, h Holder) error
	// Open begins to read. If looks hide messages, at most one reader is open, and a later reader
	// of the session returns no message that came after the first one was opened.
	Open(ctx context.Context, from From) (Reader, error)
	// Write writes messages to a place, and returns when each is confirmed or has failed. It
	// returns one error for each message, nil for a confirmed one. An error that wraps [ErrRefused]
	// means that the broker will never take that message. Messages of one key keep their order.
	Write(ctx context.Context, to Place, msgs []*Message) []error
	// Remove records entries. When they are confirmed, it removes messages from the DLQ that an
	// open reader of this session has returned.
	Remove(ctx context.Context, msgs []*Message, entries ...Entry) error
	// Close releases the locks.
	Close(ctx context.Context) error
}

// Reader reads the messages that are in the DLQ when it is opened and have not been removed.
type Reader interface {
	// Next returns the next message if want accepts it, and otherwise nil without an error, so that
	// nothing is copied for it. The message that want gets, and the bytes in it, are valid only
	// until want returns. Its strings may be kept, and so may everything of the returned message. A
	// nil want accepts all messages.
	//
	// io.EOF is the end. For a reader from [End] it is the end for now: the next call returns
	// messages that have arrived since. [ErrBehind] means that earlier messages must be removed
	// first; then Next continues.
	Next(ctx context.Context, want func(*Message) bool) (*Message, error)
	// Close hands back messages that were only read.
	Close(ctx context.Context) error
}

// Arriver is a [Reader] that can tell what has come without reading it.
type Arriver interface {
	// Arrived is how many messages have come to the DLQ since the reader was opened.
	Arrived(ctx context.Context) (int, error)
}

// Holding is a [Reader] whose broker takes back what is in hand for too long.
type Holding interface {
	// HoldsFor is how long the broker lets a message be in hand; 0 for as long as one likes.
	HoldsFor() time.Duration
}

// From is where a reader begins.
type From uint8

// The beginnings. A driver whose looking hides is not asked for End.
const (
	Start From = iota // at the oldest message
	End               // behind what lies there now: only what comes later is seen
)

// Place is where a message is written.
type Place uint8

// The places.
const (
	Back Place = iota // the way back to the group that failed it, with the state of a replay
	Dead              // the DLQ itself, as the message says
)

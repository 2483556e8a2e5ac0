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
// Nobody behind the seam retries for long: a driver returns the error of a broker that does not
// answer. A call may block until its context ends.
type DLQ interface {
	// Info says what the DLQ is. It asks nobody.
	Info() Info
	// Count is how many messages lie in the DLQ; exact is false where the broker only estimates
	// it. It looks at none of them.
	Count(ctx context.Context) (n int64, exact bool, err error)
	// Oldest is when the oldest message that is not settled was written to the DLQ, by the clock
	// of who wrote it. It looks at no message. ok is false where nothing lies there, or the
	// broker does not say.
	Oldest(ctx context.Context) (at time.Time, ok bool, err error)
	// Keeps returns how long the broker keeps a message; 0 where none ends by its age. The error
	// is [ErrNotTold] where the broker does not say.
	Keeps(ctx context.Context) (time.Duration, error)
	// Drops returns another bound by which the broker may drop a message,
	// "max-length=1000 by argument"; empty for none. The error is [ErrNotTold] where the broker
	// does not say.
	Drops(ctx context.Context) (string, error)
	// Begin connects a reader or a runner. It takes nothing yet.
	Begin(ctx context.Context) (Session, error)
	// Load returns the state as it is now. It is the caller's.
	Load(ctx context.Context) (State, error)
	// Append writes entries to the state, in order, and returns when they are confirmed. A
	// lease entry counts only where [State.Put] says so. The error is [ErrFull] where the
	// broker has no room for them; then nothing is written.
	Append(ctx context.Context, entries ...Entry) error
	// Held says who has a lock; ok is false when nobody does.
	Held(ctx context.Context, lock string) (h Holder, ok bool, err error)
	// Close ends what the DLQ needs, its sessions included: their locks end as if their
	// process had died.
	Close() error
}

// Locks. A driver whose Look is [FreeLook] is not asked for LookLock.
const (
	ClaimLock = "claim" // held by the runner that writes
	LookLock  = "look"  // held by the reader, where reading hides
)

// Session is a connection of one reader or one runner. It belongs to one goroutine. When a lock
// of it was lost, its methods return an error that is [ErrLost].
type Session interface {
	// Lock takes a lock until the session is closed, or returns a [HeldError] at once.
	Lock(ctx context.Context, lock string, h Holder) error
	// Open begins to read. Where looking hides there is at most one reader open, and a later
	// one of the session returns nothing that came after the first one was opened.
	Open(ctx context.Context, from From) (Reader, error)
	// Write writes messages to a place, and returns when each is confirmed or has an error of
	// its own: one for each message, nil where it is there. An error that wraps ErrRefused of
	// package delayqueue means that the broker will never take that message. Messages of one
	// key keep their order.
	Write(ctx context.Context, to Place, msgs []*Message) []error
	// Remove records entries, and when they are confirmed takes messages out of the DLQ that
	// an open reader of this session has returned.
	Remove(ctx context.Context, msgs []*Message, entries ...Entry) error
	// Close gives the locks back.
	Close(ctx context.Context) error
}

// Reader reads the messages that lie in the DLQ when it is opened and have not been removed.
type Reader interface {
	// Next returns the next message that want takes; nil without an error for one that it does
	// not take, so that nothing is copied for it. The message that want is given, and the
	// bytes that it points to, are there only until want returns; its strings may be kept, and
	// so may all of the message that is returned. A want of nil takes all.
	//
	// io.EOF is the end. Of a reader from [End] it is the end for now: the next call returns
	// what has come since. [ErrBehind] means that more lies behind what is in hand: when that
	// is removed, Next goes on.
	Next(ctx context.Context, want func(*Message) bool) (*Message, error)
	// Close gives back what was only looked at.
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

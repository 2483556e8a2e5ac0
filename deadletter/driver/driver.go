// Package driver has the interfaces that an adapter implements so that package deadletter can work
// with its broker's dead-letter queues. [New] makes a deadletter.Queue of a driver. Programs that only work with a DLQ need
// package deadletter alone.
//
// Experimental: until version 1.0 a minor version may change this package. The changelog says so.
//
// # The seam
//
// A [DLQ] is one dead-letter queue, of one origin and one group. It keeps messages, and with
// them a small [State]: the latest value of each key. A [Session] is one connection of one reader or
// one runner. Package deadletter does everything else: claims, tasks and their counts,
// windows, canaries and resume.
//
//	DLQ      Info Count Connect Load Append LockHolder    requests that read no message,
//	         Close Oldest Retention DropLimit             and how long messages stay
//	Session  Lock Check Open Write Remove Close           the work of a reader or a runner
//	Reader   Next Close                                   the messages, the oldest first
//
// Brokers differ in three ways, which the seam does not hide:
//
//   - Reading has no effect on Kafka and on the broker in memory. RabbitMQ and SQS hide a message
//     that is read, until it is removed or the reader is closed: see Info.ReadEffect. There package
//     deadletter takes ReadLock first, so that only one reader is open at a time.
//   - A lock of RabbitMQ and of the broker in memory belongs to a connection and ends with it.
//     On Kafka and SQS it is a lease in the state, see [Leases]: it ends some seconds after its
//     process has died.
//   - The state is a compacted topic on Kafka. On RabbitMQ and SQS it is one message, see
//     [Snapshot], which is read and replaced under a lock of the broker's.
//
// # One replay
//
// A replay of 1,000 messages in windows of 500:
//
//	Connect, Lock(claim)           refused with a HeldError while another session has it
//	Append(task: running)          the task is known before its first message
//	Lock(look), Open(Start)
//	500 x Next
//	Write(DestinationGroup, 500)            each is confirmed
//	Remove(500, task)              first records the task, which counts the 500 messages and names
//	                               them as settling; then removes them from the DLQ
//	500 x Next, Write, Remove      this record names the messages of the second window instead
//	Next: io.EOF
//	Reader.Close                   returns unsettled messages to the DLQ
//	Append(task: done)             nothing is settling
//	Session.Close                  releases the locks
//
// # One crash
//
// A runner may die between any two of these calls, or inside one. The next runner writes only
// after the session of the dead runner has ended, with its connection or its lease. By then the
// unsettled messages of the dead runner are in the DLQ again.
//
//   - Before Write: the next runner sends the window.
//   - After Write, before Remove has recorded the task: the next runner sends the window again,
//     as duplicates with the same ids. It counts the messages, because the first runner has not.
//   - After the record, before all messages are removed: the rest of the window is in the DLQ,
//     and the task names it as settling. The next runner sends the rest again, perhaps as
//     duplicates, and does not count it again.
//   - After Remove: the next runner continues with the next window.
package driver

import (
	"context"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
)

// ErrRefused marks an error of one message that no other try can fix, for example because the message is too large.
var ErrRefused = driver.ErrRefused

// DLQ is one dead-letter queue. It is safe for concurrent use. If its Count may omit messages, it is a [deadletter.Uncounter].
//
// A driver does not retry for long: it returns the error of a broker that does not answer. A call
// may block until its context ends.
type DLQ interface {
	// These methods are those of a deadletter.Queue. None of them reads a message.
	Info() deadletter.Info
	Count(ctx context.Context) (n int64, exact bool, err error)
	Oldest(ctx context.Context) (at time.Time, ok bool, err error)
	Retention(ctx context.Context) (time.Duration, error)
	DropLimit(ctx context.Context) (string, error)
	// Connect connects a reader or a runner. It takes no message yet.
	Connect(ctx context.Context) (Session, error)
	// Load returns the present state, which the caller may change.
	Load(ctx context.Context) (State, error)
	// Append writes entries to the state, in order, and returns when they are confirmed.
	// [State.Put] decides whether a lease entry counts. The error is [deadletter.ErrStateFull] if the broker has no
	// room for them; then nothing is written.
	Append(ctx context.Context, entries ...Entry) error
	// LockHolder returns the holder of a lock; ok is false if there is none.
	LockHolder(ctx context.Context, lock string) (h deadletter.Holder, ok bool, err error)
	// Close closes the DLQ and its sessions, whose locks end as if their process had died.
	Close() error
}

// The locks. If the ReadEffect is [deadletter.NoReadEffect], ReadLock is not used.
const (
	ClaimLock = "claim" // held by the runner that writes
	ReadLock  = "look"  // held by the reader if reading hides messages
)

// Session is a connection of one reader or one runner. It belongs to one goroutine. If it is a [deadletter.Locator], a purge need
// not read the messages.
type Session interface {
	// Lock takes a lock until the session is closed, or returns a [deadletter.HeldError] at once.
	Lock(ctx context.Context, lock string, h deadletter.Holder) error
	// Check returns an [deadletter.ErrClaimLost] if one of the locks is lost, or may be lost. It sends no request.
	// Package deadletter calls it before each of the calls below, and after each that fails.
	Check() error
	// Open begins to read. If reading hides messages, at most one reader is open, and a later reader of
	// the session may leave out messages that came after the first one was opened.
	Open(ctx context.Context, from deadletter.From) (Reader, error)
	// Write writes messages to a destination, and returns when each is confirmed or has failed. It
	// returns one error for each message, nil for a confirmed one. An error that wraps [ErrRefused]
	// means that the broker will never take that message. Messages of one key keep their order.
	Write(ctx context.Context, to Destination, msgs []*deadletter.Message) []error
	// Remove records entries and then, when they are confirmed, removes messages. An open reader of
	// this session must have returned them.
	Remove(ctx context.Context, msgs []*deadletter.Message, entries ...Entry) error
	// Close releases the locks.
	Close(ctx context.Context) error
}

// Reader reads the messages that are in the DLQ when it is opened and have not been removed. If it is a
// [deadletter.ArrivalCounter], a canary need not read all messages again.
type Reader interface {
	// Next is that of a deadletter.Scan, except that only a reader from [End] must return newer messages
	// after io.EOF. want is never nil.
	Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error)
	// Close returns to the DLQ the messages that were read and not removed.
	Close(ctx context.Context) error
}

// TailSize is the least number of records that a reader from Tail reads of each partition.
const TailSize = 4096

// Destination says where Write writes messages.
type Destination uint8

// The destinations.
const (
	DestinationGroup Destination = iota // the retry topic or queue of the group that failed it, with the state of a replay
	DestinationDLQ                      // the DLQ itself, with the headers that the message has
)

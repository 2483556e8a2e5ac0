package deadletter

import (
	"context"
	"errors"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
)

// Queue is one DLQ, of one origin and one group, as an adapter opens it. It is safe for concurrent
// use.
//
// A Queue does not retry: its methods return the error of a broker that does not answer. The
// functions of this package then return that error, and their results so far stay recorded. A
// call may block until its context ends.
type Queue interface {
	// Info describes the DLQ. It sends no request.
	Info() Info
	// Count returns the number of messages in the DLQ; exact is false for an estimate. It reads no
	// message.
	Count(ctx context.Context) (n int64, exact bool, err error)
	// Oldest returns when the oldest unsettled message was written to the DLQ, by its writer's
	// clock. ok is false if there is none, or if the broker does not report it.
	Oldest(ctx context.Context) (at time.Time, ok bool, err error)
	// Retention returns how long the broker keeps a message, or 0 if it keeps messages of any age. The
	// error is [ErrNotReported] if the broker does not report it.
	Retention(ctx context.Context) (time.Duration, error)
	// DropLimit returns another bound by which the broker may drop a message, such as "max-length=1000
	// by argument"; empty if there is none. The error is [ErrNotReported] if the broker does not report
	// it.
	DropLimit(ctx context.Context) (string, error)
	// Scan begins to read. It skips settled messages. If reading hides messages from others
	// (RabbitMQ, SQS), Scan waits while another scan runs, and is refused with a [HeldError] while
	// a runner reads.
	Scan(ctx context.Context, from From) (Scan, error)
	// Claim takes the DLQ for one runner. From then on only that runner may write. Claim is refused
	// at once with a [HeldError] while another runner has the DLQ.
	Claim(ctx context.Context, holder Holder) (Claim, error)
	// Tasks returns the recorded tasks, the oldest first.
	Tasks(ctx context.Context) ([]Task, error)
	// Request sends a request to the runner of a task, in any process.
	Request(ctx context.Context, task string, r Request) error
	// Holder returns the present holder of the DLQ; ok is false if there is none.
	Holder(ctx context.Context) (h Holder, ok bool, err error)
	// Close ends the connection. All scans must be closed and all claims released before.
	Close() error
}

// The types that describe a DLQ and the messages in it.
type (
	Info     = driver.Info
	Holder   = driver.Holder
	From     = driver.From
	Message  = driver.Message
	Header   = driver.Header
	Position = driver.Position
	Writer   = driver.Writer
	Outcome  = driver.Outcome
	// HeldError is the error if another runner holds the DLQ. It names the holder.
	HeldError = driver.HeldError
)

// The values of From.
const (
	FromStart = driver.FromStart
	FromEnd   = driver.FromEnd
	// Tail is a few thousand messages before the end on Kafka, Start on other brokers.
	FromTail = driver.FromTail
)

// NoReadEffect is the ReadEffect of an Info if reading has no effect and needs no confirmation.
const NoReadEffect = driver.NoReadEffect

// Scan reads a DLQ. It belongs to one goroutine.
type Scan interface {
	// Next reads the next message. If want accepts it, or is nil, Next returns it. Otherwise Next
	// returns nil without an error, and copies nothing of the message. The message that want gets,
	// and the bytes in it, are valid only until want returns; its strings stay valid.
	//
	// The error is io.EOF at the end that the DLQ had when the scan began or last returned io.EOF. A
	// later call returns newer messages. The error is [ErrBlocked] if earlier messages must be settled
	// first.
	Next(ctx context.Context, want func(*Message) bool) (*Message, error)
	// Close returns to the DLQ the messages that were read and not settled.
	Close() error
}

// Claim is the right to change a DLQ. Its methods belong to one goroutine. The adapter keeps the
// claim alive until Release. If it was lost, because the process was stopped for too long, the
// methods return an error that is ErrClaimLost.
type Claim interface {
	// Scan is Queue.Scan for messages to settle.
	Scan(ctx context.Context, from From) (Scan, error)
	// Send writes messages to the retry topic or queue of the DLQ's group, and returns when each is confirmed
	// or has failed. It returns one error for each message, nil for a confirmed one. Messages of
	// one key keep their order.
	Send(ctx context.Context, msgs []*Message) []error
	// Settle records outcomes and the task, and removes the messages that leave the DLQ. It must be
	// called after their copies are confirmed. The messages must be of a scan of this claim. If the
	// task does not fit, nothing is recorded, and the error is [ErrStateFull].
	Settle(ctx context.Context, t Task, done []Settlement) error
	// Add is Send to the DLQ itself.
	Add(ctx context.Context, msgs []*Message) []error
	// Save records a task in place of its earlier record.
	Save(ctx context.Context, t Task) error
	// Requested returns the latest request for a task.
	Requested(ctx context.Context, task string) (Request, error)
	// Release ends the claim, so that the next runner need not wait.
	Release(ctx context.Context) error
}

// Request is a request to the runner of a task.
type Request string

// The requests. The empty one means to continue.
const (
	RequestNone   Request = ""
	RequestPause  Request = "pause"
	RequestCancel Request = "cancel"
)

// Sentinels for errors.Is.
var (
	// ErrHeld marks a DLQ that another runner has. See [HeldError].
	ErrHeld = driver.ErrHeld
	// ErrClaimLost marks a claim that has expired, or that another runner has taken.
	ErrClaimLost = driver.ErrClaimLost
	// ErrNoTask marks a task that is not recorded.
	ErrNoTask = errors.New("no such task")
	// ErrBlocked is the error of Scan.Next if the broker shows no more messages until earlier ones
	// are settled or returned, as in a group of a FIFO queue of SQS.
	ErrBlocked = driver.ErrBlocked
	// ErrStateFull is the error of Claim.Settle if the broker has no room for the task.
	ErrStateFull = driver.ErrStateFull
	// ErrNotReported marks a value that the broker does not report.
	ErrNotReported = driver.ErrNotReported
	// ErrNotFound marks a message that is not (or no longer) in the DLQ.
	ErrNotFound = errors.New("no such dead letter")
)

// ReplayState returns the state with which a dead letter goes back to its group; adapters write it. The policy begins again with
// attempt 1. The id, the place in the origin and the time of the first failure stay, and the number of replays increases by one.
func ReplayState(m *Message, info Info) redeliver.State {
	st := m.State
	st.ID, st.Group, st.Origin = m.ID, info.Group, info.Origin
	st.Attempts, st.Reason, st.Policy = 0, "", ""
	st.Due, st.PostponedSince, st.Expires = time.Time{}, time.Time{}, time.Time{}
	st.Replays++
	st.Replayed = now()
	return st
}

package deadletter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
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

// Info describes a DLQ.
type Info struct {
	Broker     string // "kafka", "rabbitmq", "sqs", "memory"
	DLQ        string // its name
	OwnDLQ     string // redeliver's own DLQ, if another program fills DLQ; otherwise empty
	Origin     string // the topic or queue whose messages failed
	Group      string // the group that failed them
	ReplayTo   string // where a replay is written; only that group reads it
	ReadBy     string // group whose committed messages are skipped if another program fills DLQ, or empty
	ReadEffect string // NoReadEffect, or what reading does to messages that others wait for
	// MaxReads is how often a message may be read before another read is refused; 0 for no limit.
	MaxReads int
	// MaxHold is for how long after a read the broker lets a message be removed; 0 for no limit.
	MaxHold time.Duration
}

// NoReadEffect is the ReadEffect of an Info if reading has no effect and needs no confirmation.
const NoReadEffect = "nothing"

// Holder is the user who holds a lock of a DLQ, and the task.
type Holder struct {
	Who   string    `json:"Who"`   // a person and a host, as the user gave them
	Task  string    `json:"Task"`  // the id of the task
	Since time.Time `json:"Since"` // when it was taken
	Until time.Time `json:"Until"` // when it ends if it is not renewed; zero if a connection holds the lock
}

// From says where a scan begins.
type From uint8

// The values of From.
const (
	FromStart From = iota // at the oldest message
	FromEnd               // after the present last message: the scan returns only later ones
	FromTail              // a few thousand messages before the end on Kafka, FromStart on other brokers
)

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

// Locator is a [Queue] or a [Claim] that finds messages without reading them, so that a message can be removed that nobody can
// decode.
type Locator interface {
	// Locate returns the messages that are at the positions, or all that are in the DLQ now if at is nil.
	// Located.Messages is nil if they must be read.
	Locate(ctx context.Context, at []Position) (Located, error)
}

// Located are messages that were not read.
type Located struct {
	// Messages has messages with only what Claim.Settle needs. It can be used again, and then has the same messages.
	Messages iter.Seq[*Message]
	// Exact reports whether each of them is a message. Otherwise some may be markers of transactions, or be compacted.
	Exact bool
}

// Uncounter is a [Queue] whose Count may omit messages.
type Uncounter interface {
	// Uncounted returns how many consumers read the DLQ if Count does not count the messages that they hold, otherwise 0.
	Uncounted(ctx context.Context) (consumers int, err error)
}

// Rescanner is a [Claim] of a DLQ whose readers hide messages from others. A canary needs it.
type Rescanner interface {
	// Rescan reads the whole DLQ again, with the messages that came after the scans of the claim were opened. Those must be
	// closed.
	Rescan(ctx context.Context) (Scan, error)
}

// ArrivalCounter is a [Scan] that may count new messages without reading them.
type ArrivalCounter interface {
	// CountArrivals returns how many messages have come to the DLQ since the scan was opened. The error is [ErrNotReported] if
	// they must be read.
	CountArrivals(ctx context.Context) (int, error)
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
	ErrHeld = errors.New("another runner has the DLQ")
	// ErrClaimLost marks a claim that has expired, or that another runner has taken.
	ErrClaimLost = errors.New("the claim on the DLQ was lost")
	// ErrNoTask marks a task that is not recorded.
	ErrNoTask = errors.New("no such task")
	// ErrBlocked is the error of Scan.Next if the broker shows no more messages until earlier ones
	// are settled or returned, as in a group of a FIFO queue of SQS.
	ErrBlocked = errors.New("earlier messages must be settled first")
	// ErrStateFull is the error of Claim.Settle if the broker has no room for the task.
	ErrStateFull = errors.New("no more can be recorded of the DLQ")
	// ErrNotReported marks a value that the broker does not report.
	ErrNotReported = errors.New("the broker does not report it")
	// ErrNotFound marks a message that is not (or no longer) in the DLQ.
	ErrNotFound = errors.New("no such dead letter")
)

// HeldError names the holder of the DLQ.
type HeldError struct {
	DLQ    string
	Holder Holder
}

func (e *HeldError) Error() string {
	text := fmt.Sprintf("dlq %s is held by %s for task %s since %s", e.DLQ, e.Holder.Who, e.Holder.Task, e.Holder.Since.UTC().Format(time.RFC3339))
	if !e.Holder.Until.IsZero() {
		text += fmt.Sprintf(", until %s unless renewed", e.Holder.Until.UTC().Format(time.RFC3339))
	}
	return text + "; pause or cancel that task, or wait"
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

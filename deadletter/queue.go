package deadletter

import (
	"context"
	"errors"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter/driver"
)

// Queue is one DLQ, as an adapter opens it: of one origin and one group. It is
// safe for concurrent use.
//
// Nobody retries here. An adapter returns the error of a broker that does not
// answer; the callers in this package stop with it, and what they did stays
// recorded. A call may block until its context ends.
type Queue interface {
	// Info says what the DLQ is. It asks nobody.
	Info() Info
	// Count is how many messages lie in the DLQ; exact is false where the broker
	// only estimates it. It looks at none of them.
	Count(ctx context.Context) (n int64, exact bool, err error)
	// Oldest is when the oldest message that is not settled was written to the DLQ, by
	// the clock of who wrote it. ok is false where nothing lies there, or the broker
	// does not say.
	Oldest(ctx context.Context) (at time.Time, ok bool, err error)
	// Keeps returns how long the broker keeps a message; 0 where none ends by its age. The
	// error is [ErrNotTold] where the broker does not say.
	Keeps(ctx context.Context) (time.Duration, error)
	// Drops returns another bound by which the broker may drop a message,
	// "max-length=1000 by argument"; empty for none. The error is [ErrNotTold] where the
	// broker does not say.
	Drops(ctx context.Context) (string, error)
	// Scan begins to read. It skips settled messages. Where looking hides a message from others (RabbitMQ, SQS),
	// it waits while another looks, and is refused with a [HeldError] while a runner reads.
	Scan(ctx context.Context, from From) (Scan, error)
	// Claim takes the DLQ for one runner, who alone may write from then on. It
	// is refused at once with a [HeldError] while another has it.
	Claim(ctx context.Context, holder Holder) (Claim, error)
	// Tasks returns the tasks that are recorded, the oldest first.
	Tasks(ctx context.Context) ([]Task, error)
	// Want asks the runner of a task, wherever that runs, to do something.
	Want(ctx context.Context, task string, w Wanted) error
	// Holder says who has the DLQ; ok is false when nobody does.
	Holder(ctx context.Context) (h Holder, ok bool, err error)
	// Close ends the connection of Open. Scans and claims must be closed before.
	Close() error
}

// The broker's own description of its DLQ, and of a message there. See package driver.
type (
	Info     = driver.Info
	Holder   = driver.Holder
	From     = driver.From
	Message  = driver.Message
	Header   = driver.Header
	Position = driver.Position
	Filler   = driver.Filler
	Outcome  = driver.Outcome
	// HeldError says who has the DLQ.
	HeldError = driver.HeldError
)

// Where a scan begins.
const (
	Start = driver.Start
	End   = driver.End
)

// FreeLook is an [Info]'s Look where looking changes nothing, and may be done unasked.
const FreeLook = driver.FreeLook

// Scan reads a DLQ. It belongs to one goroutine.
type Scan interface {
	// Next returns the next message if want takes it; nil without an error if not, so that
	// nothing is copied for it. The message that want is given, and the bytes that it points
	// to, are there only until want returns; its strings may be kept, and so may all of the
	// message that is returned. A want of nil takes all. io.EOF is the end as it was when the
	// scan began or when the last io.EOF was returned. After that it may be called
	// again, for what has come since. [ErrBehind] where it must be given something
	// first.
	Next(ctx context.Context, want func(*Message) bool) (*Message, error)
	// Close gives back what was only looked at.
	Close() error
}

// Claim is the right to change a DLQ. Its methods belong to one goroutine; the
// adapter keeps the claim alive by itself until Release. When it was lost (the
// process was stopped for too long), they return an error that is [ErrLost].
type Claim interface {
	// Scan is Queue.Scan for messages that are to be settled.
	Scan(ctx context.Context, from From) (Scan, error)
	// Send writes messages to the way back of the DLQ's group, and returns when
	// each is confirmed or has an error of its own: one error for each, nil
	// where it is there. Messages of one key keep their order.
	Send(ctx context.Context, msgs []*Message) []error
	// Settle records outcomes, and the task behind them as Save does; what is out is removed. It is called after
	// the copies are confirmed. The messages come from a scan of this claim. Messages that leave and messages
	// that stay are settled in two calls: if not all marks of those that stay fit, nothing is recorded, and the
	// error is [ErrFull].
	Settle(ctx context.Context, t Task, done []Settlement) error
	// Add writes messages into the DLQ itself, confirmed, as Send does.
	Add(ctx context.Context, msgs []*Message) []error
	// Save records a task in place of what was recorded of it before.
	Save(ctx context.Context, t Task) error
	// Wanted is what was last asked of a task.
	Wanted(ctx context.Context, task string) (Wanted, error)
	// Forget is called by a runner that has read the whole DLQ, with the marked messages that it met there. It
	// drops the marks of messages that somebody else has removed.
	Forget(ctx context.Context, met map[Position]bool) error
	// Release ends the claim. The next runner need not wait then.
	Release(ctx context.Context) error
}

// Wanted is what a runner is asked to do.
type Wanted string

// The values of Wanted. The empty one is "go on".
const (
	GoOn        Wanted = ""
	BePaused    Wanted = "pause"
	BeCancelled Wanted = "cancel"
)

// Sentinels for errors.Is.
var (
	// ErrHeld marks a DLQ that another runner has. See [HeldError].
	ErrHeld = driver.ErrHeld
	// ErrLost marks a claim that has run out, or was taken over.
	ErrLost = driver.ErrLost
	// ErrNoTask marks a task that is not recorded.
	ErrNoTask = errors.New("no such task")
	// ErrBehind is Scan.Next's where what is in hand holds up what is behind it (in a group of a FIFO queue of
	// SQS): when that is settled, or its scan closed, Next goes on. For a reader that settles nothing this is
	// the end.
	ErrBehind = driver.ErrBehind
	// ErrFull is Claim.Settle's where the broker keeps no more marks of messages that
	// stay. A replay goes on without them.
	ErrFull = driver.ErrFull
	// ErrNotTold marks what a broker does not report of a DLQ.
	ErrNotTold = driver.ErrNotTold
	// ErrNotFound marks a message that does not lie in the DLQ (any more).
	ErrNotFound = errors.New("no such dead letter")
)

// NewState is the state with which a dead letter goes back to its group: its
// policy begins anew, its id, its place in the origin and its first failure stay,
// and it is counted as replayed once more. Adapters write it.
func NewState(m *Message, info Info) redeliver.State {
	st := m.State
	st.ID, st.Group, st.Origin = m.ID, info.Group, info.Origin
	st.Attempts, st.Reason, st.Policy, st.Schedule = 0, "", "", ""
	st.Due, st.PostponedSince, st.Expires = time.Time{}, time.Time{}, time.Time{}
	st.Replays++
	st.Replayed = now()
	return st
}

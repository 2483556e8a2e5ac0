package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
)

// Queue is one DLQ, as an adapter opens it: of one origin and one group. It is
// safe for concurrent use.
//
// Who retries: nobody here. An adapter returns the error of a broker that does
// not answer; the callers in this package stop with it, and what they did stays
// recorded. How long a call may block: until its context ends.
type Queue interface {
	// Info says what the DLQ is. It asks nobody.
	Info() Info
	// Count is how many messages lie in the DLQ; exact is false where the broker
	// only estimates it. It looks at none of them.
	Count(ctx context.Context) (n int64, exact bool, err error)
	// Scan begins to read. What was settled is not seen. Where looking hides a
	// message from others (RabbitMQ, SQS), it waits while another looks, and is
	// refused with a [HeldError] while a runner reads.
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
	// Close lets go of what Open took. Scans and claims must be closed before.
	Close() error
}

// From is where a scan begins.
type From uint8

// The places.
const (
	Start From = iota // at the oldest message
	End               // behind what lies there now: only what comes later is seen
)

// Scan reads a DLQ. It belongs to one goroutine. Where copies of what nobody wants are
// worth saving it is a [Sifter], too.
type Scan interface {
	// Next returns the next message; io.EOF at the end as it was when the scan
	// began or when the last io.EOF was returned. After that it may be called
	// again, for what has come since. [ErrBehind] where it must be given something
	// first.
	Next(ctx context.Context) (*Message, error)
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
	// Settle records outcomes, and the task behind them as Save does; what is out
	// is removed. It is called after the copies are confirmed. The messages come
	// from a scan of this claim. What is out and what stays are told in two calls:
	// where not all that stays can be remembered nothing is recorded, and the error
	// is [ErrFull].
	Settle(ctx context.Context, t Task, done []Settlement) error
	// Add writes messages into the DLQ itself, confirmed, as Send does.
	Add(ctx context.Context, msgs []*Message) []error
	// Save records a task in place of what was recorded of it before.
	Save(ctx context.Context, t Task) error
	// Wanted is what was last asked of a task.
	Wanted(ctx context.Context, task string) (Wanted, error)
	// Release ends the claim. The next runner need not wait then.
	Release(ctx context.Context) error
}

// Forgetter is a [Claim] of a DLQ whose marks outlive messages that somebody else has
// taken away.
type Forgetter interface {
	// Forget is told by a runner that has seen the whole DLQ which marked messages it
	// has met there. See [Record.Forget].
	Forget(ctx context.Context, met map[Position]bool) error
}

// Info says what a DLQ is.
type Info struct {
	Broker string // "kafka", "rabbitmq", "sqs", "memory"
	DLQ    string // its name
	Own    string // redeliver's own DLQ for them, where somebody else fills DLQ; else empty
	Origin string // the topic or queue whose messages failed
	Group  string // the group that failed them
	Back   string // where a replay is written, and only that group reads
	ReadBy string // whose commits are passed over, where somebody else fills it; empty for nobody's
	Look   string // what looking costs: FreeLook, or what counter it changes
}

// FreeLook is an [Info]'s Look where looking changes nothing, and may be done unasked.
const FreeLook = "nothing"

// Holder is who has a DLQ, and for what.
type Holder struct {
	Who   string    // a person and a host, as they call themselves
	Task  string    // the id of the task
	Since time.Time // when it was taken
	Until time.Time // when it ends if it is not renewed; zero where the connection holds it
}

// Wanted is what a runner is asked to do.
type Wanted string

// What may be asked. The empty Wanted is "go on".
const (
	GoOn        Wanted = ""
	BePaused    Wanted = "pause"
	BeCancelled Wanted = "cancel"
)

// Sentinels for errors.Is.
var (
	// ErrHeld marks a DLQ that another runner has. See [HeldError].
	ErrHeld = errors.New("another runner has the DLQ")
	// ErrLost marks a claim that has run out, or was taken over.
	ErrLost = errors.New("the claim on the DLQ was lost")
	// ErrNoTask marks a task that is not recorded.
	ErrNoTask = errors.New("no such task")
	// ErrBehind is Scan.Next's where what is in hand holds up what is behind it (in
	// a group of a FIFO queue of SQS): when that is settled, or its scan closed, Next
	// goes on. Who only looks has come to the end by it.
	ErrBehind = errors.New("more lies behind what is in hand")
	// ErrFull is Claim.Settle's where the broker keeps no more marks of messages that
	// stay. A replay goes on without them.
	ErrFull = errors.New("no more messages can be marked in the DLQ")
	// ErrNotFound marks a message that does not lie in the DLQ (any more).
	ErrNotFound = errors.New("no such dead letter")
)

// HeldError says who has the DLQ.
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

// NewState is the state with which a dead letter goes back to its group: its
// policy begins anew, its id, its place in the origin and its first failure stay,
// and it is counted as replayed once more. Adapters write it.
func NewState(m *Message, info Info) redeliver.State {
	st := m.State
	st.ID, st.Group, st.Origin = m.ID, info.Group, info.Origin
	st.Attempts, st.Reason, st.Policy, st.Schedule = 0, "", "", ""
	st.Due, st.PostponedSince, st.Expires = time.Time{}, time.Time{}, time.Time{}
	st.Replays++
	return st
}

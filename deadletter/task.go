package deadletter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// Task records one piece of work on a DLQ: the request, who made it, and its progress. It is plain
// data, and is kept as JSON.
type Task struct {
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	DLQ  string `json:"dlq"`
	// The user's name and reason.
	Who string `json:"who"`
	Why string `json:"why"`

	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	Ended   time.Time `json:"ended,omitzero"`
	Status  Status    `json:"status"`
	// Note says why the task stopped or failed.
	Note string `json:"note,omitempty"`

	// ReplayTo and ReadBy are those of the [Info] with which the DLQ was opened. ReplayTo is empty if
	// an older version recorded the task.
	ReplayTo string `json:"replay_to,omitempty"`
	ReadBy   string `json:"read_by,omitempty"`

	// The following are from the options of the request.
	Filter Filter `json:"filter,omitzero"`
	// Causes are the errors of up to three fingerprints of Filter, for the history: the messages may be gone when somebody reads
	// it.
	Causes     []Cause       `json:"causes,omitempty"`
	Rate       float64       `json:"rate,omitempty"`
	Canary     []int         `json:"canary,omitempty"`
	Watch      time.Duration `json:"watch,omitempty"`
	Window     int           `json:"window,omitempty"`
	MaxReplays int           `json:"max_replays,omitempty"`
	Change     bool          `json:"change,omitempty"` // of a replay: it had a ReplayOptions.Change
	Expect     int64         `json:"expect,omitempty"` // of a purge: the maximum that it may remove
	Diff       *Diff         `json:"diff,omitempty"`   // of an edit

	Counts Counts `json:"counts"`
	// Settling names the messages that are counted and may still be in the DLQ: 8 bytes for each.
	Settling []byte `json:"settling,omitempty"`
}

// Cause is the error of a fingerprint.
type Cause struct {
	Fingerprint string           `json:"fingerprint"`
	Reason      redeliver.Reason `json:"reason,omitempty"`
	ErrorType   string           `json:"error_type,omitempty"`
	Error       string           `json:"error,omitempty"` // of the first message that matched; its middle may be left out
}

// Bounds of Task.Causes, because SQS and RabbitMQ keep the history in one message.
const (
	maxCauses    = 3
	maxCauseText = 200 // bytes
)

// addCause adds the cause of a message that matches the filter, if the filter selects by causes.
func (t *Task) addCause(m *Message) {
	if len(t.Causes) >= min(len(t.Filter.Fingerprints), maxCauses) {
		return
	}
	name := Fingerprint(m)
	if !slices.ContainsFunc(t.Causes, func(c Cause) bool { return c.Fingerprint == name }) {
		t.Causes = append(t.Causes, Cause{name, m.State.Reason, limits.Cut(m.State.ErrorType, maxCauseText), limits.CutMiddle(m.State.Error, maxCauseText)})
	}
}

// Counts is the progress of a task. It is recorded together with the outcomes that it counts.
type Counts struct {
	Scanned  int64 `json:"scanned"` // read by the latest runner
	Matched  int64 `json:"matched"` // those that match the filter
	Replayed int64 `json:"replayed,omitempty"`
	Changed  int64 `json:"changed,omitempty"` // those of Replayed that ReplayOptions.Change has changed
	Edited   int64 `json:"edited,omitempty"`
	Purged   int64 `json:"purged,omitempty"`
	Imported int64 `json:"imported,omitempty"`
	Skipped  int64 `json:"skipped,omitempty"`  // left in the DLQ by the latest runner: replayed too often
	Refused  int64 `json:"refused,omitempty"`  // left in the DLQ by the latest runner: cannot be replayed
	Returned int64 `json:"returned,omitempty"` // replayed, and in the DLQ again
}

// count adds an outcome.
func (c *Counts) count(o Outcome) {
	switch o {
	case OutcomeReplayed:
		c.Replayed++
	case OutcomeEdited:
		c.Edited++
	case OutcomePurged:
		c.Purged++
	case OutcomeSkipped:
		c.Skipped++
	case OutcomeRefused:
		c.Refused++
	}
}

// Report has functions that are called with the progress of a task, by its goroutine. A nil function
// is not called.
type Report struct {
	// Progress is called with the task after each window.
	Progress func(Task)
	// Result is called with the outcome of each message after the outcome is recorded.
	Result func(Result)
}

// Result is the outcome of one message.
type Result struct {
	ID       string
	Position Position
	Outcome  Outcome
	// Why is the reason if the message was refused.
	Why string
}

// Kind is the kind of a task.
type Kind string

// The kinds of tasks.
const (
	KindReplay Kind = "replay"
	KindEdit   Kind = "edit"
	KindPurge  Kind = "purge"
	KindImport Kind = "import"
)

// whyNotResumable returns the reason why a task of this kind cannot be resumed, or "" if it can.
func (k Kind) whyNotResumable() string {
	switch k {
	case KindEdit:
		return "it has one message: edit that message again"
	case KindImport:
		return "its input is not kept; import again what it has not written"
	default:
		return ""
	}
}

// Status is the status of a task.
type Status string

// The statuses of a task.
const (
	StatusRunning     Status = "running"
	StatusPaused      Status = "paused"      // a user requested it, or its runner was stopped
	StatusCancelled   Status = "cancelled"   // a user cancelled it; it cannot be resumed
	StatusStopped     Status = "stopped"     // by its canary: replayed messages came back
	StatusFailed      Status = "failed"      // Note says why, for example the broker did not answer, or the import is unreadable
	StatusDone        Status = "done"        // all its messages are settled
	StatusInterrupted Status = "interrupted" // its process died, or it lost the claim
)

// Resumable reports whether Resume can continue the task: a replay or purge that has no runner, and is
// neither done nor cancelled. Edits and imports can be neither resumed nor paused, because an edit has one message, and
// the input of an import is not kept.
func (t *Task) Resumable() bool {
	switch t.Status {
	case StatusPaused, StatusStopped, StatusFailed, StatusInterrupted:
		return t.Kind.whyNotResumable() == ""
	default:
		return false
	}
}

// Unfinished reports whether the task runs or is [Task.Resumable].
func (t *Task) Unfinished() bool { return t.Status == StatusRunning || t.Resumable() }

// History returns the tasks of a DLQ, the oldest first. A task that is recorded as running, but has no runner, has the
// status interrupted.
func History(ctx context.Context, q Queue) ([]Task, error) {
	tasks, err := q.Tasks(ctx)
	if err != nil {
		return nil, err
	}
	holder, held, err := q.Holder(ctx)
	if err != nil {
		return nil, err
	}
	for i := range tasks {
		if tasks[i].Status == StatusRunning && !(held && holder.Task == tasks[i].ID) {
			tasks[i].Status = StatusInterrupted
		}
	}
	return tasks, nil
}

// Lookup returns one task, or [ErrNoTask].
func Lookup(ctx context.Context, q Queue, id string) (Task, error) {
	tasks, err := History(ctx, q)
	if err != nil {
		return Task{}, err
	}
	for _, t := range tasks {
		if t.ID == id {
			return t, nil
		}
	}
	return Task{}, fmt.Errorf("%w %q in %s; History lists the tasks", ErrNoTask, id, q.Info().DLQ)
}

// Pause asks the runner of a task to stop after its present window. It returns when the request is
// recorded; the task's status shows when the task is paused. Pause refuses imports and edits, which
// could not be resumed.
func Pause(ctx context.Context, q Queue, id string) error {
	return sendRequest(ctx, q, id, RequestPause)
}

// CancelOptions says who cancels a task.
type CancelOptions struct{ Who string }

// Cancel ends a task so that it cannot be resumed. It asks the runner of the task to stop; a task without a runner is
// cancelled at once. Messages that the task has replayed stay replayed.
func Cancel(ctx context.Context, q Queue, id string, opt CancelOptions) error {
	if err := sendRequest(ctx, q, id, RequestCancel); err != nil {
		return err
	}
	claim, err := q.Claim(ctx, Holder{Who: opt.Who, Task: id})
	if errors.Is(err, ErrHeld) {
		return nil // its runner finds the request or, if another task has the DLQ, Resume does
	}
	if err != nil {
		return err
	}
	t, err := Lookup(ctx, q, id)
	if err == nil && t.Unfinished() {
		t.end(StatusCancelled, "cancelled by "+opt.Who)
		err = claim.Save(ctx, t)
	}
	return errors.Join(err, finish(ctx, claim.Release))
}

// sendRequest sends a request to the runner of a task, if the task can be paused or cancelled.
func sendRequest(ctx context.Context, q Queue, id string, r Request) error {
	t, err := Lookup(ctx, q, id)
	if err != nil {
		return err
	}
	if !t.Unfinished() {
		return fmt.Errorf("task %s of %s is %s already", id, t.DLQ, t.Status)
	}
	if why := t.Kind.whyNotResumable(); why != "" && r == RequestPause {
		return fmt.Errorf("task %s is of the kind %s, and is not paused because it could not be resumed: %s", id, t.Kind, why)
	}
	return q.Request(ctx, id, r)
}

// newTask returns a task that is about to run.
func newTask(q Queue, kind Kind, who, why string) Task {
	at, info := now(), q.Info()
	return Task{
		ID:   newID(at),
		Kind: kind, DLQ: info.DLQ, Who: who, Why: why, ReplayTo: info.ReplayTo, ReadBy: info.ReadBy,
		Created: at, Updated: at, Status: StatusRunning,
	}
}

// checkOpenedWith returns an error if the DLQ is opened with another ReplayTo or ReadBy than the task's: the task would
// read other messages, or send the rest elsewhere.
func (t *Task) checkOpenedWith(info Info) error {
	var was, is, how string
	switch {
	case t.ReplayTo == "": // an older version did not record it
		return nil
	case t.ReadBy != info.ReadBy:
		was, is, how = t.ReadBy, info.ReadBy, "ReadBy (--read-by)"
	case t.ReplayTo != info.ReplayTo && t.Kind == KindReplay:
		was, is, how = t.ReplayTo, info.ReplayTo, "ReplayTo (--replay-to)"
	default:
		return nil
	}
	return fmt.Errorf("task %s was made with %s %q, and %s is opened with %q: open it as it was then, with ReplayTo %q and ReadBy %q, or cancel the task",
		t.ID, how, was, info.DLQ, is, t.ReplayTo, t.ReadBy)
}

// newID returns a new id of a task or a command. Ids sort by time.
func newID(at time.Time) string {
	return at.Format("20060102-150405-") + strings.ToLower(rand.Text()[:6])
}

// now returns the current time in the precision of a record.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
